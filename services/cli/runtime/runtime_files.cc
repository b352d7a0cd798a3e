#include "services/cli/runtime/runtime_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/runtime/sets.h"
#include "services/codegen/header.h"
#include "services/codegen/targets/machines.h"

namespace quench::cli {
namespace {

struct RuntimeText {
  const char* name;
  std::string_view text;
};
constexpr char kConfigName[] = "quench_rt-config.cmake";
constexpr std::array<RuntimeText, 4> kTexts = {{
    {
        "abi.h",
#include "embedded/abi.h.inc"
    },
    {
        "quench_rt.h",
#include "embedded/quench_rt.h.inc"
    },
    {
        "quench.hpp",
#include "embedded/quench.hpp.inc"
    },
    {
        kConfigName,
#include "embedded/quench_rt-config.cmake.inc"
    },
}};
constexpr char kSharedName[] = "libquench_rt.so", kArchiveName[] = "libquench_rt.a";

// `armv7-linux-gnueabihf` for a target whose triple is `armv7-unknown-linux-gnueabihf`.
std::string SystemOf(const codegen::Target& target) {
  const codegen::Architecture* machine = codegen::FindArchitecture(target.machine);
  const size_t system = target.triple.find("linux");
  const size_t environment = target.triple.find('-', std::min(system, target.triple.size()));
  return fmt::format(
      "{}-linux-{}", machine == nullptr ? "unknown" : machine->name,
      environment == std::string::npos ? "gnu" : target.triple.substr(environment + 1));
}

// The model's name in CMake, and how it is linked where it is no shared library.
std::string ModelTarget(const ModelBeside& model) {
  std::string name = codegen::HeaderPrefix(model.prefix);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string file = "${CMAKE_CURRENT_LIST_DIR}/" + model.library;
  std::string text = fmt::format(
      "\n# The model: its header and, of an object or archive, the code. ${{quench_model_{0}}} is "
      "its file.\n"
      "set(quench_model_{0} \"{1}\")\n"
      "if(NOT TARGET quench_model::{0})\n"
      "  add_library(quench_model::{0} INTERFACE IMPORTED)\n"
      "  set_target_properties(quench_model::{0} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "
      "\"${{CMAKE_CURRENT_LIST_DIR}}\"",
      name, file);
  if (model.registers) {
    text +=
        "\n    INTERFACE_LINK_LIBRARIES \"-Wl,--whole-archive," + file + ",--no-whole-archive\"";
  } else if (!model.library.ends_with(".so")) {
    text += "\n    INTERFACE_LINK_LIBRARIES \"" + file + "\"";
  }
  return text + ")\nendif()\n";
}

const quench_runtime_set* FindSet(const std::string& system) {
  const quench_runtime_set* set = quench_runtime_sets;
  while (set->system != nullptr && system != set->system) ++set;
  return set->system == nullptr ? nullptr : set;
}

std::string_view Bytes(const unsigned char* begin, const unsigned char* end) {
  return {reinterpret_cast<const char*>(begin), static_cast<size_t>(end - begin)};
}

}  // namespace

absl::StatusOr<std::string> RuntimeSystem(const codegen::ResolvedTarget& target) {
  std::string system = SystemOf(target.variants.back());
  if (FindSet(system) != nullptr) return system;
  std::vector<std::string> there;
  for (const quench_runtime_set* set = quench_runtime_sets; set->system != nullptr; ++set)
    there.push_back(fmt::format("`{}`", set->system));
  return Unsupported(
      "--with-runtime: this build of Quench has no runtime for `{}` (it has {}). Compile without "
      "--with-runtime, and build common/runtime/*.c and common/runtime/device/*.c with that "
      "system's C compiler",
      system, there.empty() ? "none" : fmt::format("those for {}", fmt::join(there, ", ")));
}

std::vector<std::string> RuntimeFileNames() {
  std::vector<std::string> names = {kSharedName, kArchiveName};
  for (const RuntimeText& each : kTexts) names.emplace_back(each.name);
  return names;
}

absl::Status WriteRuntime(const std::string& system, const ModelBeside& model,
                          const std::filesystem::path& folder) {
  const quench_runtime_set* set = FindSet(system);
  if (set == nullptr) return Internal("there is no runtime for `{}`", system);
  QUENCH_RETURN_IF_ERROR(
      WriteFileAtomically(folder / kSharedName, Bytes(set->shared, set->shared_end)));
  QUENCH_RETURN_IF_ERROR(
      WriteFileAtomically(folder / kArchiveName, Bytes(set->archive, set->archive_end)));
  for (const RuntimeText& each : kTexts) {
    std::string text(each.text);
    if (std::strcmp(each.name, kConfigName) == 0) text += ModelTarget(model);
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(folder / each.name, text));
  }
  return absl::OkStatus();
}

}  // namespace quench::cli
