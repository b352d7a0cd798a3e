#include <fmt/format.h>

#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/library_text.h"

namespace quench::cli {
namespace {

constexpr char kInspectExamples[] = R"(Examples:
  quench inspect model.so                    inputs, outputs, target, identity; the library may be for any CPU
  quench inspect model.a --format json       the same for scripts
  quench inspect model.so --key modelKey.bin --password-file FILE     of an encrypted library
  quench inspect modelKey.bin                which kind of key or password opens it)";

struct InspectArgs {
  std::string file;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  std::string format = "text";
};

absl::Status RunInspect(const InspectArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const nlohmann::json description,
                          DescribeLibraryFile(args.file, *args.key));
  if (args.format == "json") {
    fmt::print("{}\n", description.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    PrintLibraryFile(args.file, description);
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareInspect(const Options& options) {
  auto args = std::make_shared<InspectArgs>();
  options
      .Add("FILE", args->file, "Library (encrypted or not), object file, archive, or modelKey.bin",
           "FILE")
      .Required();
  AddKeyFlags(options, args->key);
  AddFormat(options, args->format);
  options.Examples(kInspectExamples);
  return [args](const StepContext&) { return RunInspect(*args); };
}

}  // namespace quench::cli
