#include "services/codegen/description.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/runtime/quench_rt.h"
#include "services/codegen/plan/boundary.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::description_test {
namespace {

using nlohmann::json;
using quench::testing::HasSubstr;

// u8 in with one pair, i8 in with three along axis 1, u8 out behind a Reshape, f32 out.
Graph Integers() {
  Graph graph;
  graph.name = "integers";
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kU8, {2, 3}));
  const ValueId b = graph.AddInput("b", Type::Tensor(DataType::kI8, {2, 3}));
  const auto constant = [&](const std::string& name, const Tensor& tensor) {
    return graph.AddConstant(name, tensor);
  };
  const ValueId scale = constant("scale", Tensor::Of(DataType::kF32, {}, std::vector<float>{0.5f}));
  const ValueId zero = constant("zero", Tensor::Of(DataType::kU8, {}, std::vector<uint8_t>{128}));
  const ValueId scales =
      constant("scales", Tensor::Of(DataType::kF32, {3}, std::vector<float>{1, 2, 4}));
  const auto node = [&](const char* op, std::vector<ValueId> inputs) {
    return graph.node(graph.AddNode(op, op, std::move(inputs))).outputs[0];
  };
  const ValueId moved =
      node("Reshape",
           {a, constant("shape", Tensor::Of(DataType::kI64, {2}, std::vector<int64_t>{2, 3}))});
  const ValueId real_a = node("DequantizeLinear", {moved, scale, zero});
  const ValueId real_b = node("DequantizeLinear", {b, scales});
  const ValueId sum = node("Add", {real_a, real_b});
  const ValueId quantized = node("QuantizeLinear", {sum, scale, zero});
  graph.outputs = {
      node("Reshape",
           {quantized, constant("flat", Tensor::Of(DataType::kI64, {1}, std::vector<int64_t>{6}))}),
      sum};
  Infer(graph);
  return graph;
}

TEST(DescriptionTest, IntegersOfTheInterfaceHaveTheirScales) {
  const Graph graph = Integers();
  const BoundaryQuantization one{-1, {0.5f}, {128}}, three{1, {1, 2, 4}, {0, 0, 0}};
  EXPECT_EQ(InputQuantization(graph, graph.inputs[0]), one);
  EXPECT_EQ(InputQuantization(graph, graph.inputs[1]), three);
  EXPECT_EQ(OutputQuantization(graph, graph.outputs[0]), one);
  EXPECT_EQ(OutputQuantization(graph, graph.outputs[1]), std::nullopt);
}

TEST(DescriptionTest, ReadersThatDisagreeLeaveNone) {
  Graph graph = Integers();
  const ValueId other =
      graph.AddConstant("other", Tensor::Of(DataType::kF32, {}, std::vector<float>{0.25f}));
  const NodeId node = graph.AddNode("DequantizeLinear", "again", {graph.inputs[0], other});
  graph.outputs.push_back(graph.node(node).outputs[0]);
  EXPECT_EQ(InputQuantization(graph, graph.inputs[0]), std::nullopt);
  graph.outputs.push_back(graph.inputs[1]);  // integers that somebody reads as they are
  EXPECT_EQ(InputQuantization(graph, graph.inputs[1]), std::nullopt);
}

TEST(DescriptionTest, LibrariesSayItToTheirReadersAndInTheirStructs) {
  Graph graph = Integers();
  graph.metadata[kSourceDigest] = std::string(64, 'a');
  CompileOptions options;
  options.class_names = {"cat", "d\"o\"g"};
  options.preprocessing = R"({"mean":[1,2]})";
  const Compiled compiled = CompileGraph(graph, options).value();
  const auto file = FileMapping::Open(compiled.library()).value();
  const json said = DescribeLibrary(file->bytes(), "model.so").value();
  EXPECT_EQ(said.at("kind"), "shared library");
  EXPECT_EQ(said.at("inputs")[0].at("quantization"),
            json::parse(R"({"scales":[0.5],"zero_points":[128]})"));
  EXPECT_EQ(said.at("inputs")[1].at("quantization").at("axis"), 1);
  EXPECT_FALSE(said.at("outputs")[1].contains("quantization"));
  EXPECT_EQ(said.at("class_names")[1], "d\"o\"g");
  EXPECT_EQ(said.at("preprocessing").at("mean")[1], 2);
  EXPECT_EQ(said.at("source_digest"), std::string(64, 'a'));

  quench_rt_model* model = nullptr;
  quench_rt_error error;
  ASSERT_EQ(quench_rt_open_file(compiled.library().c_str(), &model, &error), QUENCH_RT_OK)
      << error.text;
  const quench_model* about = quench_rt_describe(model);
  EXPECT_EQ(said.at("uuid"), about->uuid);
  const quench_quantization* pairs = about->inputs[1]->quantization;
  ASSERT_NE(pairs, nullptr);
  EXPECT_EQ(pairs->size, sizeof *pairs);
  EXPECT_EQ(pairs->axis, 1);
  ASSERT_EQ(pairs->count, 3u);
  EXPECT_EQ(pairs->scales[2], 4);
  EXPECT_EQ(about->outputs[0]->quantization->zero_points[0], 128);
  EXPECT_EQ(about->outputs[1]->quantization, nullptr);
  json whole = json::parse(about->description);
  whole["uuid"] = about->uuid;
  whole["kind"] = said.at("kind");
  whole["machine"] = said.at("machine");
  EXPECT_EQ(whole, said);
  quench_rt_close(model);
}

TEST(DescriptionTest, EveryKindOfFileForEveryMachineIsRead) {
  for (const char* target : {"x86-64", "i686", "aarch64", "armv7", "android/cpu"}) {
    for (const Emit emit : {Emit::kSharedLibrary, Emit::kObject, Emit::kArchive}) {
      CompileOptions options;
      options.target = target;
      options.emit = emit;
      const Compiled compiled = CompileGraph(Integers(), options).value();
      const auto file = FileMapping::Open(compiled.library()).value();
      const absl::StatusOr<json> said = DescribeLibrary(file->bytes(), "model");
      ASSERT_TRUE(said.ok()) << target << ": " << said.status();
      EXPECT_EQ(said->at("uuid").get<std::string>().size(), 36u);
      EXPECT_EQ(said->at("inputs")[0].at("name"), "a");
      EXPECT_EQ(said->at("kind"), emit == Emit::kObject    ? "object"
                                  : emit == Emit::kArchive ? "archive"
                                                           : "shared library");
    }
  }
}

TEST(DescriptionTest, DamagedFilesAreRefused) {
  const Compiled compiled = CompileGraph(Integers()).value();
  const std::string whole = ReadFile(compiled.library()).value();
  const auto describe = [](std::string_view bytes) {
    return DescribeLibrary(std::as_bytes(std::span(bytes)), "model.so");
  };
  for (size_t size = 0; size < whole.size(); size += 101)
    EXPECT_FALSE(describe(std::string_view(whole).substr(0, size)).ok()) << size;
  // Altered ones are read or refused; sanitizers see what else could happen.
  for (size_t at = 0; at < whole.size(); at += 37) {
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ 0x41);
    describe(altered).status().IgnoreError();
  }
  EXPECT_THAT(std::string(describe("hello").status().message()),
              HasSubstr("neither an ELF file nor an archive"));
}

}  // namespace
}  // namespace quench::codegen::description_test
