#include "services/cli/library_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/age.h"
#include "common/runtime/rt_internal.h"
#include "services/codegen/description.h"

namespace quench::cli {
namespace {

// Facts that an encrypted file tells without a key.
absl::StatusOr<nlohmann::json> DescribeSealed(std::span<const std::byte> bytes,
                                              const std::string& name) {
  quench_age_summary summary;
  switch (quench_age_summarise(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                               &summary)) {
    case QUENCH_AGE_OK:
      break;
    case QUENCH_AGE_VERSION:
      return InvalidArgument("`{}` uses an unsupported version of the age format (supported: v1)",
                             name);
    case QUENCH_AGE_PAYLOAD:
      return InvalidArgument("`{}` is encrypted and truncated", name);
    default:
      return InvalidArgument("`{}` is encrypted and its header is damaged", name);
  }
  nlohmann::json result = {{"kind", "encrypted file"},
                           {"format", "age-encryption.org/v1"},
                           {"recipients", summary.recipients},
                           {"content_bytes", summary.text_size}};
  if (summary.others > 0) result["other_recipients"] = summary.others;
  if (summary.work > 0) result["scrypt_work_factor"] = summary.work;
  return result;
}

absl::StatusOr<nlohmann::json> DescribeDecrypted(const std::string& file, const KeyFlags& flags) {
  QUENCH_ASSIGN_OR_RETURN(const ArtifactKey key, KeyOf(flags));
  quench_rt_error error;
  int fd = -1;
  if (quench_rt_decrypt(file.c_str(), key.path.c_str(),
                        key.password ? key.password->c_str() : nullptr, &fd,
                        &error) != QUENCH_RT_OK) {
    return InvalidArgument("{}", error.text);
  }
  const auto plain = FileMapping::Open(fmt::format("/proc/self/fd/{}", fd));
  ::close(fd);
  QUENCH_RETURN_IF_ERROR(plain.status());
  QUENCH_ASSIGN_OR_RETURN(nlohmann::json result, codegen::DescribeLibrary((*plain)->bytes(), file));
  result["encrypted"] = true;
  return result;
}

absl::StatusOr<nlohmann::json> DescribeFile(const std::string& file, const KeyFlags& flags) {
  if (!flags.key.empty()) return DescribeDecrypted(file, flags);
  QUENCH_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(file));
  const auto bytes = mapping->bytes();
  if (quench_age_is(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) != 0)
    return DescribeSealed(bytes, file);
  return codegen::DescribeLibrary(bytes, file);
}

// ---- for people ----

void PrintFact(const std::string& name, const std::string& text) {
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
    PrintFact(name, fmt::format("{}: {}{}", tensor.at("name").get<std::string>(), TypeOf(tensor),
                                place.empty() ? "" : ", may share memory with " + place));
    name = "";
  }
}

void PrintSealed(const nlohmann::json& sealed) {
  PrintFact("format", sealed.at("format"));
  if (sealed.contains("scrypt_work_factor")) {
    PrintFact("opened by",
              fmt::format("a password (scrypt, 2^{})", sealed.at("scrypt_work_factor").dump()));
  } else {
    PrintFact("opened by",
              fmt::format("the identity of {} recipient{}", sealed.at("recipients").dump(),
                          sealed.at("recipients") == 1 ? "" : "s"));
  }
  if (sealed.contains("other_recipients"))
    PrintFact("", fmt::format("and {} of other kinds", sealed.at("other_recipients").dump()));
  PrintFact("content",
            fmt::format("{} bytes; --key shows what it is", sealed.at("content_bytes").dump()));
}

void PrintLibrary(const nlohmann::json& library) {
  const auto text = [&](const char* key) { return library.at(key).get<std::string>(); };
  PrintFact("name", text("name"));
  PrintFact("uuid", text("uuid"));
  PrintFact("fingerprint", text("fingerprint"));
  const std::string revision = text("producer_revision");
  PrintFact("producer", text("producer") + (revision.empty() ? "" : ", revision " + revision));
  PrintFact("source", text("source_digest").empty() ? "" : "sha256 " + text("source_digest"));
  PrintFact("target", text("target_string"));
  const char* name = "code";
  for (const nlohmann::json& variant : library.at("variants")) {
    std::vector<std::string> features = variant.at("cpu_features");
    PrintFact(name, fmt::format("{} for {}, needs {}", variant.at("name").get<std::string>(),
                                variant.at("triple").get<std::string>(),
                                features.empty() ? "nothing"
                                                 : fmt::format("{}", fmt::join(features, ", "))));
    name = "";
  }
  if (library.contains("num_cores")) PrintFact("threads", library.at("num_cores").dump());
  PrintTensors(library, "inputs", "inputs");
  PrintTensors(library, "outputs", "outputs");
  name = "sizes";
  const char* heading = "states";
  for (const nlohmann::json& state :
       library.value("states", nlohmann::json::array())) {  // older libraries have none
    const nlohmann::json& initial = state.at("initial");
    PrintFact(heading,
              fmt::format("{} becomes {} of the next run{}", state.at("output").get<std::string>(),
                          state.at("input").get<std::string>(),
                          initial == 0 ? "" : ", which begins with " + initial.dump()));
    heading = "";
  }
  for (const nlohmann::json& symbol : library.at("symbols")) {
    const std::string most = symbol.contains("max") ? symbol.at("max").dump() : "any";
    PrintFact(name, fmt::format("{}: {} to {}", symbol.at("name").get<std::string>(),
                                symbol.at("min").dump(), most));
    name = "";
  }
  std::vector<std::string> classes = library.at("class_names");
  constexpr size_t kShown = 8;
  const size_t count = classes.size();
  if (count > kShown) classes.resize(kShown);
  if (count > 0)
    PrintFact("classes", fmt::format("{}{}", fmt::join(classes, ", "),
                                     count > kShown ? fmt::format(", ... ({})", count) : ""));
  if (!library.at("preprocessing").empty())
    PrintFact("preprocessing", library.at("preprocessing").dump());
}

}  // namespace

absl::StatusOr<nlohmann::json> DescribeLibraryFile(const std::string& file, const KeyFlags& flags) {
  QUENCH_ASSIGN_OR_RETURN(nlohmann::json description, DescribeFile(file, flags));
  QUENCH_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(file));
  description["bytes"] = mapping->bytes().size();
  return description;
}

void PrintLibraryFile(const std::string& file, const nlohmann::json& description) {
  const bool sealed = description.contains("content_bytes");
  const auto bytes = description.at("bytes").get<double>();
  fmt::print("{}: {}{}{}, {}\n", file, description.contains("encrypted") ? "encrypted " : "",
             description.at("kind").get<std::string>(),
             sealed ? "" : " for " + description.at("machine").get<std::string>(),
             bytes < 1e5 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} MB", bytes / 1e6));
  if (sealed) {
    PrintSealed(description);
  } else {
    PrintLibrary(description);
  }
}

}  // namespace quench::cli
