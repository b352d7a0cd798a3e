#include "services/cli/evidence.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/blobs/blob_store.h"
#include "common/ir/npy.h"
#include "common/ir/wire/module_file.h"

namespace quench::cli::evidence_test {
namespace {

TEST(EvidenceTest, TheFolderHoldsGraphWeightsAndSample) {
  Graph graph;
  const ValueId x = graph.AddInput("x/y", Type::Tensor(DataType::kF32, {2}));
  const Tensor large = Tensor::Zeros(DataType::kF32, {2000});  // larger than what modules hold
  const ValueId w = graph.AddConstant("w", large);
  const NodeId node = graph.AddNode("Concat", "c", {x, w}, 1, {{"axis", int64_t{0}}});
  graph.outputs = graph.node(node).outputs;
  graph.value(graph.outputs[0]).type = Type::Tensor(DataType::kF32, {2002});
  codegen::CheckEvidence evidence{"value `c` is wrong", "llvm -mcpu=host", graph, {}};
  evidence.inputs["x/y"] = Tensor::Of(DataType::kF32, {2}, std::vector<float>{1, 2});
  const TempDir parent = *TempDir::Create();
  const auto folder = WriteEvidence(evidence, parent.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->parent_path(), parent.path());
  EXPECT_TRUE(folder->filename().string().starts_with("quench-check-"));
  const auto store = *LocalBlobStore::Open(parent.path() / "empty");
  const auto read = ReadModule(*FileMapping::Open(*folder / "graph.qir"), "", *store);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->value(*read->FindValue("w")).constant->tensor.size(), 2000);
  EXPECT_EQ(ReadNpy(*folder / "inputs" / "x_y.npy")->FloatAt(1), 2);
  const std::string report = *ReadFile(*folder / "report.txt");
  EXPECT_NE(report.find("value `c` is wrong"), report.npos);
  EXPECT_NE(report.find("--target 'llvm -mcpu=host' --check full"), report.npos);
  EXPECT_TRUE(std::filesystem::exists(*folder / "graph.ir.txt"));
}

}  // namespace
}  // namespace quench::cli::evidence_test
