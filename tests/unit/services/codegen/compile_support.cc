#include "tests/unit/services/codegen/compile_support.h"

#include <malloc.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/sample.h"

namespace quench::codegen {

void Infer(Graph& graph) {
  const absl::Status inferred = ops::InferGraph(graph);
  EXPECT_TRUE(inferred.ok()) << inferred;
  QUENCH_CHECK(inferred.ok());
}

Tensor Values(std::vector<int64_t> dims, uint64_t seed) {
  ArtifactTensor tensor{"x", DataType::kF32, {}};
  for (const int64_t dim : dims) tensor.dims.push_back({dim, "", dim, dim});
  return (*RandomInputs(std::vector{tensor}, seed))[0];
}

ValueId Node1(Graph& graph, const std::string& op, std::vector<ValueId> inputs,
              std::map<std::string, Attribute> attributes) {
  const NodeId node = graph.AddNode(op, op, std::move(inputs), 1, std::move(attributes));
  return graph.node(node).outputs[0];
}

absl::StatusOr<Compiled> CompileGraph(const Graph& graph, CompileOptions options) {
  QUENCH_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create());
  Compiled compiled{std::move(folder), {}};
  QUENCH_ASSIGN_OR_RETURN(compiled.report,
                          Compile(graph, options, compiled.library(), compiled.header()));
  return compiled;
}

absl::StatusOr<std::vector<KernelReport>> PlannedKernels(const Graph& graph,
                                                         const CompileOptions& options) {
  QUENCH_ASSIGN_OR_RETURN(const Graph groups, GroupGraph(graph, options));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Target> targets, ResolveTarget(options.target));
  WeightTable weights;
  QUENCH_ASSIGN_OR_RETURN(const std::vector<PlannedVariant> variants,
                          PlanVariants(groups, targets, options, weights, {}));
  return variants.back().built.reports;
}

std::vector<std::string> RunnableTargets() {
  std::vector<std::string> names;
  const uint32_t machine = ResolveTarget("host").value()[0].machine;
  for (const TargetName& each : TargetNames()) {
    const std::vector<Target> variants = ResolveTarget(each.name).value();
    const bool runs =
        variants[0].machine == machine && ThisCpuFeatures().Has(variants.back().required_features);
    if (runs) names.push_back(each.name);
  }
  return names;
}

void ForEachBuild(const Graph& graph, const std::vector<int>& levels,
                  const std::function<void(const Compiled& compiled, int level,
                                           const std::string& where)>& check) {
  const auto build = [&](const std::string& target, int level) {
    CompileOptions options;
    options.opt_level = level;
    options.target = target;
    const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
    const std::string where = fmt::format("{}, level {}", target, level);
    ASSERT_TRUE(compiled.ok()) << where << ": " << compiled.status();
    check(*compiled, level, where);
  };
  for (const int level : levels) build("host", level);
  for (const std::string& target : testing::Sample(RunnableTargets(), 6)) build(target, 3);
}

void ForEachRun(const Compiled& compiled, const std::vector<Tensor>& inputs,
                const std::function<void(const std::vector<Tensor>& outputs,
                                         const std::string& where)>& check) {
  std::vector<Tensor> first;
  for (const auto& [threads, fill] : {std::pair(1, 0xFF), {1, 0xA5}, {3, 0xA5}}) {
    ::mallopt(M_PERTURB, fill ^ 0xFF);
    const auto artifact = Artifact::Open(compiled.library(), threads);
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    for (int run = 0; run < (threads == 1 && fill == 0xFF ? 1 : 2); ++run) {
      const absl::StatusOr<std::vector<Tensor>> outputs = (*artifact)->Run(inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      check(*outputs, fmt::format("{} threads, run {}", threads, run));
      if (first.empty()) first = *outputs;
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal((*outputs)[i].bytes(), first[i].bytes()))
            << "output " << i << " depends on what memory held before, or on " << threads
            << " threads";
      }
    }
    EXPECT_GE((*artifact)->arena_bytes(), (*artifact)->arena_lower_bound());
  }
  ::mallopt(M_PERTURB, 0);
}

void ExpectSame(const Graph& graph, const std::vector<Tensor>& inputs, int level,
                double tolerance) {
  const absl::StatusOr<std::vector<Tensor>> expected = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  CompileOptions options;
  options.opt_level = level;
  const absl::StatusOr<Compiled> compiled = CompileGraph(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ForEachRun(*compiled, inputs, [&](const std::vector<Tensor>& actual, const std::string& where) {
    ASSERT_EQ(actual.size(), expected->size());
    for (size_t i = 0; i < expected->size(); ++i) {
      EXPECT_EQ(actual[i].dims(), (*expected)[i].dims()) << "output " << i << ", level " << level;
      EXPECT_LE(RelativeError(actual[i], (*expected)[i]), tolerance)
          << "output " << i << ", level " << level << ", " << where;
    }
  });
}

void ExpectSameAsInterpreter(const Graph& graph, const std::map<std::string, int64_t>& sizes,
                             double tolerance) {
  const absl::StatusOr<std::vector<Tensor>> inputs = RandomInputs(InputsOf(graph), 7, sizes);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  for (int level = 0; level <= 3; ++level) ExpectSame(graph, *inputs, level, tolerance);
}

std::string RuntimeSources() {
  std::string sources;
  const std::filesystem::path root = QUENCH_SOURCE_DIR;
  for (const char* folder : {"common/runtime", "common/runtime/device"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root / folder)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() == ".c") sources += " " + path.string();
    }
  }
  return sources;
}

}  // namespace quench::codegen
