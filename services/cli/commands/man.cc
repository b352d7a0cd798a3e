#include <fmt/format.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/manual.h"

namespace quench::cli {
namespace {

absl::Status WritePages(const CommandDescription& program, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create", folder);
  std::vector<const CommandDescription*> pages = {&program};
  for (const CommandDescription& command : program.commands) pages.push_back(&command);
  for (const CommandDescription* page : pages) {
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(std::filesystem::path(folder) / ManualFile(*page),
                                               ManualPage(*page, QUENCH_VERSION)));
  }
  fmt::print("{} pages in {}\n", pages.size(), folder);
  return absl::OkStatus();
}

}  // namespace

Action DeclareMan(const Options& options) {
  auto folder = std::make_shared<std::string>();
  options.In("Output")
      .Add("--output,-o", *folder, "Folder for quench.1 and a page for each command", "DIR")
      .Required();
  options.Examples(R"(Examples:
  quench man --output ~/.local/share/man/man1    then: man quench-compile)");
  return [folder, options](const StepContext&) { return WritePages(options.Program(), *folder); };
}

}  // namespace quench::cli
