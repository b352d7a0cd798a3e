// Artifacts for other CPUs: run by a cross-compiled demo under qemu's user mode, compared with the
// host's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen {
namespace {

// What a shell command prints; empty when it fails.
std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::array<char, 4096> chunk;
  while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe))
    text.append(chunk.data(), n);
  return ::pclose(pipe) == 0 ? text : "";
}

struct Cross {
  std::string target, compiler, emulator, sysroot;
};

// All first values that the demo prints after "=".
std::vector<double> Numbers(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::istringstream values(line.substr(equals + 1));
    for (double value; values >> value;) numbers.push_back(value);
  }
  return numbers;
}

Graph TestGraph() {
  Graph graph;
  graph.name = "cross";
  auto f32 = [](std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); };
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {2, 8}));
  const ValueId x = graph.AddInput("x", f32({n, 3, 12, 12}));
  const ValueId w = graph.AddConstant("w", Values({8, 3, 3, 3}));
  const ValueId bias = graph.AddConstant("b", Values({8}, 4));
  const ValueId conv =
      Node1(graph, "Conv", {x, w, bias}, {{"kernel_shape", std::vector<int64_t>{3, 3}}});
  const ValueId pooled = Node1(graph, "GlobalAveragePool", {Node1(graph, "Tanh", {conv})});
  const ValueId flat = Node1(graph, "Flatten", {pooled});
  const ValueId v = graph.AddConstant("v", Values({8, 10}, 3));
  graph.outputs = {Node1(graph, "Softmax", {Node1(graph, "MatMul", {flat, v})}),
                   Node1(graph, "Exp", {conv})};
  for (const DataType dtype : {DataType::kI4, DataType::kU8}) {  // weights that stay integers
    Tensor integers = Tensor::Zeros(dtype, {8, 512});
    for (size_t i = 0; i < integers.bytes().size(); ++i)
      integers.mutable_bytes()[i] = static_cast<std::byte>(i * 89);
    const ValueId real =
        Node1(graph, "DequantizeLinear",
              {graph.AddConstant("q", integers), graph.AddConstant("scale", Values({2, 512}, 5))},
              {{"axis", int64_t{0}}, {"block_size", int64_t{4}}});
    graph.outputs.push_back(Node1(graph, "MatMul", {flat, real}));
  }
  Infer(graph);
  return graph;
}

// The demo program for another CPU; "" when it cannot be built.
std::string BuildDemo(const Cross& cross, const std::filesystem::path& folder) {
  const std::string demo = folder / "demo";
  const std::string runtime = std::string(QUENCH_SOURCE_DIR) + "/common/runtime/";
  const std::string build = cross.compiler + " -std=c11 -O1 -I" + QUENCH_SOURCE_DIR + " " +
                            runtime + "cpu.c " + runtime + "open.c " + runtime + "pool.c " +
                            runtime + "session.c " + runtime + "demo.c -o " + demo +
                            " -ldl -lpthread && echo built";
  return Output(build) == "built\n" ? demo : "";
}

std::string RunHere(const std::filesystem::path& library) {
  return Output(std::string(QUENCH_DEMO) + " " + library.string() + " 2 61");
}

class QemuTest : public ::testing::TestWithParam<Cross> {
 protected:
  void SetUp() override {
    if (Output("command -v " + cross_.compiler).empty() ||
        Output("command -v " + cross_.emulator).empty()) {
      GTEST_SKIP() << cross_.compiler << " or " << cross_.emulator << " is not installed";
    }
    demo_ = BuildDemo(cross_, folder_.path());
    ASSERT_FALSE(demo_.empty());
  }
  // What the demo computes on the emulated CPU, every input byte being 61.
  std::vector<double> Run(const Compiled& compiled) const {
    return Numbers(Output(cross_.emulator + " -L " + cross_.sysroot + " " + demo_ + " " +
                          compiled.library().string() + " 2 61"));
  }

  const Cross cross_ = GetParam();

 private:
  const TempDir folder_ = *TempDir::Create();
  std::string demo_;
};

TEST_P(QemuTest, RunsWithTheHostsResults) {
  const Graph graph = TestGraph();
  for (const int level : {0, 1, 3}) {
    CompileOptions options;
    options.opt_level = level;
    const absl::StatusOr<Compiled> host = CompileGraph(graph, options);
    ASSERT_TRUE(host.ok()) << host.status();
    options.target = cross_.target;
    const absl::StatusOr<Compiled> other = CompileGraph(graph, options);
    ASSERT_TRUE(other.ok()) << other.status();
    // Every input byte is 61: elements of 0x3d3d3d3d, about 0.046.
    const std::vector<double> actual = Run(*other);
    const std::vector<double> expected = Numbers(RunHere(host->library()));
    ASSERT_FALSE(expected.empty());
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-4 * std::max(1.0, std::abs(expected[i])))
          << "level " << level << ", value " << i;
    }
  }
}

struct Checked {
  std::string name;
  double size = 0;
};

// What a graph computes on this CPU.
std::vector<Tensor> OnThisCpu(const Graph& graph, const std::vector<Tensor>& inputs) {
  const Compiled compiled = CompileGraph(graph).value();
  return Artifact::Open(compiled.library(), 1).value()->Run(inputs).value();
}

// Every layer and function of bytes, on inputs that differ from 61 by a constant; outputs are how
// many elements have the bits that the integers mean, or, after functions of floats, those of this
// CPU.
Graph CheckedByteLayers(std::vector<Checked>& checked) {
  Graph all;
  all.name = "bytes";
  std::vector<Graph> graphs = ByteFunctions();
  for (const ByteLayer& layer : ByteLayers()) graphs.push_back(ByteGraph(layer));
  const size_t exact = graphs.size();
  for (const ByteLayer& layer : ByteActivations()) graphs.push_back(ByteGraph(layer));
  for (size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = graphs[g];
    std::vector<Tensor> inputs = ByteInputs(graph);
    const std::vector<Tensor> expected =
        g < exact ? ops::Evaluate(InIntegers(graph), inputs).value() : OnThisCpu(graph, inputs);
    const std::vector<ValueId> values = AppendGraph(all, graph, graph.name);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId input = values[static_cast<size_t>(graph.inputs[i])];
      for (int64_t k = 0; k < inputs[i].size(); ++k) inputs[i].mutable_bytes()[k] ^= std::byte{61};
      const ValueId seed = all.AddInput("seed", all.value(input).type);
      const ValueId pattern = all.AddConstant("pattern", inputs[i]);
      all.ReplaceUses(input, Node1(all, "BitwiseXor", {seed, pattern}));
    }
    // In another shape, so that the comparison is not part of what is compared.
    const int64_t size = expected[0].size();
    const ValueId flat = Node1(all, "Reshape",
                               {values[static_cast<size_t>(graph.outputs[0])],
                                all.AddConstant("flat", Tensor::I64({1, size, 1}))});
    const ValueId right = Node1(
        all, "Equal", {flat, all.AddConstant("expected", expected[0].Reshaped({1, size, 1}))});
    const ValueId ones =
        Node1(all, "Cast", {right}, {{"to", static_cast<int64_t>(DataType::kI32)}});
    all.outputs.push_back(Node1(all, "ReduceSum", {ones}, {{"keepdims", int64_t{0}}}));
    checked.push_back({graph.name, static_cast<double>(expected[0].size())});
  }
  all.Compact();
  Infer(all);
  return all;
}

TEST_P(QemuTest, IntegersHaveTheSameBits) {
  std::vector<Checked> checked;
  const Graph graph = CheckedByteLayers(checked);
  std::vector<std::string> targets = {cross_.target};
  if (cross_.target == "aarch64") targets.push_back("aarch64-dotprod");
  for (const std::string& target : targets) {
    CompileOptions options;
    options.target = target;
    const absl::StatusOr<Compiled> other = CompileGraph(graph, options);
    ASSERT_TRUE(other.ok()) << other.status();
    const std::vector<double> equal = Run(*other);
    ASSERT_EQ(equal.size(), checked.size()) << target;
    for (size_t i = 0; i < checked.size(); ++i)
      EXPECT_EQ(equal[i], checked[i].size) << target << ", " << checked[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cpus, QemuTest,
                         ::testing::Values(Cross{"aarch64", "aarch64-linux-gnu-gcc", "qemu-aarch64",
                                                 "/usr/aarch64-linux-gnu"},
                                           Cross{"armv7", "arm-linux-gnueabihf-gcc", "qemu-arm",
                                                 "/usr/arm-linux-gnueabihf"}),
                         [](const auto& test) { return test.param.target; });

}  // namespace
}  // namespace quench::codegen
