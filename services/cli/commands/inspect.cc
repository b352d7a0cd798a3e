#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/age.h"
#include "common/runtime/rt_internal.h"
#include "services/cli/commands/declarations.h"
#include "services/cli/encryption.h"
#include "services/codegen/description.h"

namespace quench::cli {
namespace {

constexpr char kInspectExamples[] = R"(Examples:
  quench inspect model.so                    inputs, outputs, target, identity; for any machine
  quench inspect model.a --format json       the same for scripts
  quench inspect model.so --key modelKey.bin --password-file FILE     of an encrypted library
  quench inspect modelKey.bin                what opens it)";

struct InspectArgs {
  std::string file;
  std::shared_ptr<KeyFlags> key = std::make_shared<KeyFlags>();
  std::string format = "table";
};

// What an encrypted file tells without a key.
absl::StatusOr<nlohmann::json> DescribeSealed(std::span<const std::byte> bytes,
                                              const std::string& name) {
  quench_age_summary summary;
  switch (quench_age_summarise(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                               &summary)) {
    case QUENCH_AGE_OK:
      break;
    case QUENCH_AGE_VERSION:
      return InvalidArgument("`{}` is of another version of the age format, v1 is read", name);
    case QUENCH_AGE_PAYLOAD:
      return InvalidArgument("`{}` is encrypted, and cut off", name);
    default:
      return InvalidArgument("`{}` is encrypted, and its header is damaged", name);
  }
  nlohmann::json result = {{"kind", "encrypted file"},
                           {"format", "age-encryption.org/v1"},
                           {"recipients", summary.recipients},
                           {"content_bytes", summary.text_size}};
  if (summary.others > 0) result["other_recipients"] = summary.others;
  if (summary.work > 0) result["scrypt_work_factor"] = summary.work;
  return result;
}

absl::StatusOr<nlohmann::json> DescribeDecrypted(const InspectArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(*args.key));
  quench_rt_error error;
  int fd = -1;
  if (quench_rt_decrypt(args.file.c_str(), key.path.c_str(),
                        key.password ? key.password->c_str() : nullptr, &fd,
                        &error) != QUENCH_RT_OK) {
    return InvalidArgument("{}", error.text);
  }
  const auto plain = FileMapping::Open(fmt::format("/proc/self/fd/{}", fd));
  ::close(fd);
  QUENCH_RETURN_IF_ERROR(plain.status());
  QUENCH_ASSIGN_OR_RETURN(nlohmann::json result,
                          codegen::DescribeLibrary((*plain)->bytes(), args.file));
  result["encrypted"] = true;
  return result;
}

absl::StatusOr<nlohmann::json> Describe(const InspectArgs& args) {
  if (!args.key->key.empty()) return DescribeDecrypted(args);
  QUENCH_ASSIGN_OR_RETURN(const auto file, FileMapping::Open(args.file));
  const auto bytes = file->bytes();
  if (quench_age_is(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) != 0)
    return DescribeSealed(bytes, args.file);
  return codegen::DescribeLibrary(bytes, args.file);
}

// ---- for people ----

void PrintLine(const std::string& name, const std::string& text) {
  if (!text.empty()) fmt::print("  {:<15}{}\n", name, text);
}

std::string TypeOf(const nlohmann::json& tensor) {
  std::vector<std::string> dims;
  for (const nlohmann::json& dim : tensor.at("dims"))
    dims.push_back(dim.is_string() ? dim.get<std::string>() : dim.dump());
  std::string text =
      fmt::format("{}[{}]", tensor.at("dtype").get<std::string>(), fmt::join(dims, ", "));
  const auto found = tensor.find("quantization");
  if (found == tensor.end()) return text;
  const nlohmann::json& scales = found->at("scales");
  if (scales.size() == 1) {
    return fmt::format("{}, scale {} zero point {}", text, scales[0].dump(),
                       found->at("zero_points")[0].dump());
  }
  return fmt::format("{}, {} scales along axis {}", text, scales.size(), found->at("axis").dump());
}

void PrintTensors(const nlohmann::json& description, const char* list, const char* name) {
  for (const nlohmann::json& tensor : description.at(list)) {
    const std::string place = tensor.value("in_place_of", "");
    PrintLine(name, fmt::format("{}: {}{}", tensor.at("name").get<std::string>(), TypeOf(tensor),
                                place.empty() ? "" : ", may have the memory of " + place));
    name = "";
  }
}

void PrintSealed(const nlohmann::json& sealed) {
  PrintLine("format", sealed.at("format"));
  if (sealed.contains("scrypt_work_factor")) {
    PrintLine("opened by",
              fmt::format("a password (scrypt, 2^{})", sealed.at("scrypt_work_factor").dump()));
  } else {
    PrintLine("opened by",
              fmt::format("the identity of {} recipient{}", sealed.at("recipients").dump(),
                          sealed.at("recipients") == 1 ? "" : "s"));
  }
  if (sealed.contains("other_recipients"))
    PrintLine("", fmt::format("and {} of other kinds", sealed.at("other_recipients").dump()));
  PrintLine("content",
            fmt::format("{} bytes; --key shows what it is", sealed.at("content_bytes").dump()));
}

void PrintLibrary(const nlohmann::json& library) {
  const auto text = [&](const char* key) { return library.at(key).get<std::string>(); };
  PrintLine("name", text("name"));
  PrintLine("uuid", text("uuid"));
  PrintLine("fingerprint", text("fingerprint"));
  const std::string revision = text("producer_revision");
  PrintLine("producer", text("producer") + (revision.empty() ? "" : ", revision " + revision));
  PrintLine("source", text("source_digest").empty() ? "" : "sha256 " + text("source_digest"));
  PrintLine("target", text("target_string"));
  const char* name = "code";
  for (const nlohmann::json& variant : library.at("variants")) {
    std::vector<std::string> features = variant.at("cpu_features");
    PrintLine(name, fmt::format("{} for {}, needs {}", variant.at("name").get<std::string>(),
                                variant.at("triple").get<std::string>(),
                                features.empty() ? "nothing"
                                                 : fmt::format("{}", fmt::join(features, ", "))));
    name = "";
  }
  if (library.contains("num_cores")) PrintLine("threads", library.at("num_cores").dump());
  PrintTensors(library, "inputs", "inputs");
  PrintTensors(library, "outputs", "outputs");
  name = "sizes";
  const char* heading = "states";
  for (const nlohmann::json& state :
       library.value("states", nlohmann::json::array())) {  // older libraries have none
    const nlohmann::json& initial = state.at("initial");
    PrintLine(heading,
              fmt::format("{} is {} of the next run{}", state.at("output").get<std::string>(),
                          state.at("input").get<std::string>(),
                          initial == 0 ? "" : ", which begins with " + initial.dump()));
    heading = "";
  }
  for (const nlohmann::json& symbol : library.at("symbols")) {
    const std::string most = symbol.contains("max") ? symbol.at("max").dump() : "any";
    PrintLine(name, fmt::format("{}: {} to {}", symbol.at("name").get<std::string>(),
                                symbol.at("min").dump(), most));
    name = "";
  }
  std::vector<std::string> classes = library.at("class_names");
  constexpr size_t kShown = 8;
  const size_t count = classes.size();
  if (count > kShown) classes.resize(kShown);
  if (count > 0)
    PrintLine("classes", fmt::format("{}{}", fmt::join(classes, ", "),
                                     count > kShown ? fmt::format(", ... ({})", count) : ""));
  if (!library.at("preprocessing").empty())
    PrintLine("preprocessing", library.at("preprocessing").dump());
}

absl::Status RunInspect(const InspectArgs& args) {
  QUENCH_ASSIGN_OR_RETURN(nlohmann::json description, Describe(args));
  QUENCH_ASSIGN_OR_RETURN(const auto file, FileMapping::Open(args.file));
  description["bytes"] = file->bytes().size();
  if (args.format == "json") {
    fmt::print("{}\n", description.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return absl::OkStatus();
  }
  const bool sealed = description.contains("content_bytes");
  const auto bytes = static_cast<double>(file->bytes().size());
  fmt::print("{}: {}{}{}, {}\n", args.file, description.contains("encrypted") ? "encrypted " : "",
             description.at("kind").get<std::string>(),
             sealed ? "" : " for " + description.at("machine").get<std::string>(),
             bytes < 1e5 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} MB", bytes / 1e6));
  if (sealed) {
    PrintSealed(description);
  } else {
    PrintLibrary(description);
  }
  return absl::OkStatus();
}

}  // namespace

Action DeclareInspect(const Options& options) {
  auto args = std::make_shared<InspectArgs>();
  options.Add("FILE", args->file, "Library, object, archive, or an encrypted library", "FILE")
      .Required();
  AddKeyFlags(options, args->key);
  options.Add("--format", args->format, "Output format", "table|json").OneOf({"table", "json"});
  options.Examples(kInspectExamples);
  return [args](const StepContext&) { return RunInspect(*args); };
}

}  // namespace quench::cli
