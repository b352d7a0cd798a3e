// How many layout transforms codegen puts into well-known networks.
//
// A transform is a copy of a whole activation from one layout to another, which computes nothing:
// it stands wherever a kernel wants another layout than the one before it gives. How to read a
// change of the numbers below: fewer is what every change of kernels and of the joint choice is
// after, so write the new number down; more means that a kernel (or a group that no kernel takes
// any longer) has come to want row-major data amid blocked ones, and is right only where the
// transforms save more than they cost, as a measurement of the network shows. The failure lists the
// transforms, so that the two lists can be compared.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ops/op.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/networks.h"

namespace quench::codegen::transforms_test {
namespace {

struct Network {
  const char* name;
  Graph (*make)();
  size_t avx2, avx512;  // transforms for x86-64-v3 and x86-64-v4
};

void PrintTo(const Network& network, std::ostream* out) { *out << network.name; }

constexpr Network kNetworks[] = {
    {"resnet50", testing::Resnet50, 1, 1},   {"densenet121", testing::Densenet121, 1, 1},
    {"googlenet", testing::Googlenet, 1, 1}, {"yolov5n", testing::Yolov5n, 3, 3},
    {"bert_base", testing::BertBase, 0, 0},
};

// "VALUE: FROM to TO" of each transform.
absl::StatusOr<std::vector<std::string>> Transforms(const Graph& network,
                                                    const std::string& target) {
  QUENCH_ASSIGN_OR_RETURN(Graph graph, passes::RunPipeline(network, {}, {}));
  QUENCH_RETURN_IF_ERROR(ops::InferGraph(graph));
  QUENCH_ASSIGN_OR_RETURN(graph, passes::RunCodegenPasses(std::move(graph), {}, {}));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Target> targets, ResolveTarget(target));
  WeightTable weights;
  QUENCH_ASSIGN_OR_RETURN(const auto variants,
                          PlanVariants(graph, {targets.back()}, {}, weights, {}));
  const BuiltProgram& built = variants[0].built;
  std::vector<std::string> texts;
  for (const Step& step : built.program.steps) {
    const auto* call = step.As<CallStep>();
    if (call == nullptr || call->kernel.name != "transform") continue;
    const Buffer& from = built.program.buffers[static_cast<size_t>(call->buffers[0])];
    const Buffer& to = built.program.buffers[static_cast<size_t>(call->buffers[1])];
    texts.push_back(fmt::format("{}: {} to {}", from.name, from.shape.layout.ToString(),
                                to.shape.layout.ToString()));
  }
  return texts;
}

class TransformsTest : public ::testing::TestWithParam<Network> {};

TEST_P(TransformsTest, AreAsManyAsWrittenDown) {
  const Graph network = GetParam().make();
  for (const auto& [target, expected] :
       {std::pair{"x86-64-v3", GetParam().avx2}, std::pair{"x86-64-v4", GetParam().avx512}}) {
    const absl::StatusOr<std::vector<std::string>> found = Transforms(network, target);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->size(), expected)
        << target << ":\n  " << fmt::format("{}", fmt::join(*found, "\n  "));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, TransformsTest, ::testing::ValuesIn(kNetworks),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quench::codegen::transforms_test
