// The table of passes.
#include "common/passes/passes.h"

namespace quench::passes {
namespace {

constexpr PassInfo kPasses[] = {
#define QUENCH_PASS(name, function, doc) {#name, doc, function, #name},
#define QUENCH_PASS_OF(group, name, function, doc) {#name, doc, function, #group},
#define QUENCH_PASS_GROUP(name, doc)
#include "common/passes/passes.def"
#undef QUENCH_PASS_GROUP
#undef QUENCH_PASS_OF
#undef QUENCH_PASS
};

constexpr PassSwitch kSwitches[] = {
#define QUENCH_PASS(name, function, doc) {#name, doc},
#define QUENCH_PASS_OF(group, name, function, doc)
#define QUENCH_PASS_GROUP(name, doc) {#name, doc},
#include "common/passes/passes.def"
#undef QUENCH_PASS_GROUP
#undef QUENCH_PASS_OF
#undef QUENCH_PASS
};

}  // namespace

std::span<const PassInfo> AllPasses() { return kPasses; }

const PassInfo* FindPass(std::string_view name) {
  for (const PassInfo& pass : kPasses) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

std::span<const PassSwitch> AllPassSwitches() { return kSwitches; }

const PassSwitch* FindPassSwitch(std::string_view name) {
  for (const PassSwitch& each : kSwitches) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

}  // namespace quench::passes
