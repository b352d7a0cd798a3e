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
  Infer(graph);
  return graph;
}

class QemuTest : public ::testing::TestWithParam<Cross> {};

TEST_P(QemuTest, RunsWithTheHostsResults) {
  const Cross& cross = GetParam();
  if (Output("command -v " + cross.compiler).empty() ||
      Output("command -v " + cross.emulator).empty()) {
    GTEST_SKIP() << cross.compiler << " or " << cross.emulator << " is not installed";
  }
  const TempDir folder = *TempDir::Create();
  const std::string demo = folder.path() / "demo";
  const std::string runtime = std::string(QUENCH_SOURCE_DIR) + "/common/runtime/";
  const std::string build = cross.compiler + " -std=c11 -O1 -I" + QUENCH_SOURCE_DIR + " " +
                            runtime + "cpu.c " + runtime + "open.c " + runtime + "pool.c " +
                            runtime + "session.c " + runtime + "demo.c -o " + demo +
                            " -ldl -lpthread && echo built";
  ASSERT_EQ(Output(build), "built\n");

  const Graph graph = TestGraph();
  for (const int level : {0, 1, 3}) {
    CompileOptions options;
    options.opt_level = level;
    const absl::StatusOr<Compiled> host = CompileGraph(graph, options);
    ASSERT_TRUE(host.ok()) << host.status();
    options.target = cross.target;
    const absl::StatusOr<Compiled> other = CompileGraph(graph, options);
    ASSERT_TRUE(other.ok()) << other.status();
    // Every input byte is 61: elements of 0x3d3d3d3d, about 0.046.
    const std::string there = Output(cross.emulator + " -L " + cross.sysroot + " " + demo + " " +
                                     other->library().string() + " 2 61");
    const std::string here =
        Output(std::string(QUENCH_DEMO) + " " + host->library().string() + " 2 61");
    const std::vector<double> actual = Numbers(there), expected = Numbers(here);
    ASSERT_FALSE(expected.empty()) << here;
    ASSERT_EQ(actual.size(), expected.size()) << there;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-4 * std::max(1.0, std::abs(expected[i])))
          << "level " << level << ", value " << i;
    }
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
