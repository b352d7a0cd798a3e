#include <fmt/ranges.h>

#include "common/base/status.h"
#include "services/quantizer/methods/method.h"

namespace quench::quantizer {
namespace {

constexpr MethodInfo kMethods[] = {
#define QUENCH_METHOD(name, function, doc) {#name, doc, function},
#include "services/quantizer/methods/methods.def"
#undef QUENCH_METHOD
};

}  // namespace

std::span<const MethodInfo> AllMethods() { return kMethods; }

absl::StatusOr<const MethodInfo*> FindMethod(std::string_view name) {
  if (name.empty()) return &kMethods[0];
  std::vector<std::string_view> known;
  for (const MethodInfo& method : kMethods) {
    if (method.name == name) return &method;
    known.push_back(method.name);
  }
  return InvalidArgument("unknown method `{}`; the methods are {}", name, fmt::join(known, ", "));
}

}  // namespace quench::quantizer
