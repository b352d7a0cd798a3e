// Every operator of the catalogue becomes code for every variant of targets.def that needs nothing
// from a library but memcpy, memmove, memset and memcmp, which codegen brings along. The first
// variant of a machine has all operators, the others a sample each.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/emit/artifact.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/link/link.h"
#include "services/codegen/plan/variants.h"
#include "tests/support/sample.h"
#include "tests/unit/services/codegen/every_operator.h"

namespace quench::codegen::operators_link_test {
namespace {

using testing::Full;
using testing::Sample;

void AddOps(const Graph& graph, std::set<std::string>& ops) {
  ForEachGraph(graph, [&](const Graph& each) {
    for (const Node& node : each.nodes) ops.insert(node.op);
  });
}

absl::Status EmitSteps(const Steps& steps, ModuleBuilder& module) {
  absl::Status status;
  ForEachStep(steps, [&](const Step& step) {
    const auto* call = step.As<CallStep>();
    if (call != nullptr && !call->kernel.empty()) status.Update(module.Emit(call->kernel).status());
  });
  return status;
}

// The kernels of `graph` at `level`, into `module`. The operators of the graph that codegen made go
// into `ops`.
absl::Status EmitKernels(Graph graph, const Target& target, int level, ModuleBuilder& module,
                         std::set<std::string>& ops) {
  CompileOptions options;
  options.opt_level = level;
  passes::PassOptions how;
  how.opt_level = level;
  AddOps(graph, ops);
  QUENCH_ASSIGN_OR_RETURN(graph, passes::RunCodegenPasses(std::move(graph), how, {}));
  AddOps(graph, ops);
  WeightTable weights;
  QUENCH_ASSIGN_OR_RETURN(const auto variants, PlanVariants(graph, {target}, options, weights, {}));
  return EmitSteps(variants[0].built.program.steps, module);
}

absl::Status LinkAlone(const Target& target, ModuleBuilder& kernels) {
  QUENCH_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Create());
  QUENCH_ASSIGN_OR_RETURN(const auto memory, ModuleBuilder::Create(target, "m"));
  QUENCH_RETURN_IF_ERROR(EmitMemoryFunctions(*memory));
  std::vector<std::filesystem::path> objects;
  for (ModuleBuilder* module : {&kernels, memory.get()}) {
    QUENCH_ASSIGN_OR_RETURN(const std::string object, module->Finish());
    objects.push_back(folder.path() / fmt::format("{}.o", objects.size()));
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(objects.back(), object));
  }
  return LinkShared(target, objects, "all.so", folder.path() / "all.so");
}

// The names of targets.def's variants.
std::vector<std::string> Variants() {
  return {
#define QUENCH_VARIANT(name, ...) name,
#include "services/codegen/targets/resolve.h"
#include "services/codegen/targets/targets.def"
  };
}

// One variant for each machine.
const std::set<std::string>& FirstVariants() {
  static const std::set<std::string> first = [] {
    std::map<uint32_t, std::string> by_machine;
    for (const std::string& name : Variants())
      by_machine.emplace(ResolveTarget(name).value().back().machine, name);
    std::set<std::string> names;
    for (const auto& [machine, name] : by_machine) names.insert(name);
    return names;
  }();
  return first;
}

class OperatorsLinkTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OperatorsLinkTest, NoneNeedsALibrary) {
  const Target target = ResolveTarget(GetParam()).value().back();
  const auto module = ModuleBuilder::Create(target);
  ASSERT_TRUE(module.ok()) << module.status();
  std::set<std::string> seen;
  const bool all = Full() || FirstVariants().contains(GetParam());
  for (const Graph& graph : all ? GraphsOfAllOperators() : Sample(GraphsOfAllOperators(), 6)) {
    for (const int level : {0, 3}) {
      const absl::Status emitted = EmitKernels(graph, target, level, **module, seen);
      EXPECT_TRUE(emitted.ok()) << graph.name << ", level " << level << ": " << emitted;
    }
  }
  std::vector<std::string> missing;
  if (all) {
    for (const ops::OpDef* op : ops::AllOps()) {
      const bool excused = NotAlone().contains(op->name);
      if (!seen.contains(op->name) && !excused) missing.push_back(op->name);
      EXPECT_FALSE(excused && seen.contains(op->name)) << op->name << " needs no excuse";
    }
    EXPECT_TRUE(missing.empty()) << "no graph has " << fmt::format("{}", fmt::join(missing, ", "));
  }
  const absl::Status linked = LinkAlone(target, **module);
  EXPECT_TRUE(linked.ok()) << linked;
}

INSTANTIATE_TEST_SUITE_P(Variants, OperatorsLinkTest, ::testing::ValuesIn(Variants()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quench::codegen::operators_link_test
