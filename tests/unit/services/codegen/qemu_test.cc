// Artifacts for other CPUs: run by a cross-compiled program under qemu's user mode, on inputs of
// which no two elements are alike, and every element that comes out compared with the interpreter's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <tuple>

#include "common/base/status.h"
#include "common/ops/evaluate.h"
#include "tests/support/sample.h"
#include "tests/unit/services/codegen/byte_layers.h"
#include "tests/unit/services/codegen/compile_support.h"
#include "tests/unit/services/codegen/half_layers.h"

namespace quench::codegen::qemu_test {
namespace {

using testing::Full;
using testing::Sample;

struct CommandResult {
  std::string text;  // what it prints, errors included
  bool ok = false;
};

CommandResult Execute(const std::string& command) {
  CommandResult result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> chunk;
  while (const size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe))
    result.text.append(chunk.data(), n);
  result.ok = ::pclose(pipe) == 0;
  return result;
}

struct Cross {
  std::string target, compiler, emulator, sysroot;
  std::vector<std::string> others;  // targets whose libraries the same program opens
  // More of them, of the same instructions in another order: if Full().
  std::vector<std::string> more = {};
  int threads = 2;
  std::string name = {};  // of the test, else the target
};
void PrintTo(const Cross& cross, std::ostream* out) { *out << cross.target; }

// ---- tensors as run_files.c reads and writes them ----

void WriteTensor(const std::filesystem::path& path, const Tensor& tensor) {
  std::ofstream file(path, std::ios::binary);
  const int64_t rank = tensor.rank();
  file.write(reinterpret_cast<const char*>(&rank), sizeof rank);
  file.write(reinterpret_cast<const char*>(tensor.dims().data()),
             static_cast<std::streamsize>(tensor.dims().size() * sizeof(int64_t)));
  file.write(reinterpret_cast<const char*>(tensor.bytes().data()),
             static_cast<std::streamsize>(tensor.bytes().size()));
}

absl::StatusOr<Tensor> ReadTensor(const std::filesystem::path& path, DataType dtype) {
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  int64_t rank = 0;
  if (bytes.size() < sizeof rank) return Internal("`{}` is cut", path.string());
  std::memcpy(&rank, bytes.data(), sizeof rank);
  const size_t begin = sizeof rank * static_cast<size_t>(rank + 1);
  if (bytes.size() < begin) return Internal("`{}` is cut", path.string());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (size_t i = 0; i < dims.size(); ++i)  // a scalar has none, and nowhere to copy to
    std::memcpy(&dims[i], bytes.data() + sizeof rank * (i + 1), sizeof rank);
  Tensor tensor = Tensor::Zeros(dtype, dims);
  if (bytes.size() != begin + tensor.bytes().size())
    return Internal("`{}` has {} bytes", path.string(), bytes.size());
  std::memcpy(tensor.mutable_bytes(), bytes.data() + begin, tensor.bytes().size());
  return tensor;
}

class QemuTest : public ::testing::TestWithParam<Cross> {
 protected:
  void SetUp() override {
    if (!Execute("command -v " + cross_.compiler.substr(0, cross_.compiler.find(' '))).ok ||
        !Execute("command -v " + cross_.emulator.substr(0, cross_.emulator.find(' '))).ok) {
      GTEST_SKIP() << cross_.compiler << " or " << cross_.emulator << " is not installed";
    }
    program_ = folder_.path() / "run_files";
    const std::string root = QUENCH_SOURCE_DIR;
    std::string build = cross_.compiler + " -std=c11 -O1 -Wall -Werror -I" + root;
    build += RuntimeSources();
    for (const char* source : {"run_files.c", "bare_loader.c"})
      build += fmt::format(" {}/tests/unit/services/codegen/{}", root, source);
    const CommandResult built =
        Execute(build + " -o " + program_.string() + " -ldl -lpthread" +
                (cross_.emulator == "qemu-arm" ? " -Wl,--wrap=getauxval" : ""));
    ASSERT_TRUE(built.ok) << built.text;
  }

  // All outputs of the library on the emulated CPU. `graph` has their types.
  absl::StatusOr<std::vector<Tensor>> Run(const Graph& graph, const Compiled& compiled,
                                          const std::vector<Tensor>& inputs,
                                          const std::string& target) const {
    QUENCH_ASSIGN_OR_RETURN(const TempDir files, TempDir::Create());
    for (size_t i = 0; i < inputs.size(); ++i)
      WriteTensor(files.path() / fmt::format("input_{}", i), inputs[i]);
    const CommandResult run =
        Execute(fmt::format("timeout 300 {} -L {} {} {} {} {}{}", cross_.emulator, cross_.sysroot,
                            program_.string(), compiled.library().string(), cross_.threads,
                            files.path().string(), target.starts_with("android/") ? " bare" : ""));
    if (!run.ok) return Internal("{} failed: {}", cross_.emulator, run.text);
    std::vector<Tensor> outputs;
    for (const ValueId id : graph.outputs) {
      QUENCH_ASSIGN_OR_RETURN(Tensor output,
                              ReadTensor(files.path() / fmt::format("output_{}", outputs.size()),
                                         graph.value(id).type.dtype));
      outputs.push_back(std::move(output));
    }
    return outputs;
  }

  // The target and those whose libraries the same program opens.
  std::vector<std::string> Targets() const {
    std::vector<std::string> targets = {cross_.target};
    targets.insert(targets.end(), cross_.others.begin(), cross_.others.end());
    if (Full()) targets.insert(targets.end(), cross_.more.begin(), cross_.more.end());
    return targets;
  }

  // The library of a graph, by its name: compiled once for all CPUs that run it.
  static const Compiled& Library(const Graph& graph, const std::string& target, int level) {
    static std::map<std::tuple<std::string, std::string, int>, Compiled> libraries;
    const std::tuple key(graph.name, target, level);
    const auto found = libraries.find(key);
    if (found != libraries.end()) return found->second;
    CompileOptions options;
    options.opt_level = level;
    options.target = target;
    return libraries.emplace(key, CompileGraph(graph, options).value()).first->second;
  }

  const Cross cross_ = GetParam();

 private:
  const TempDir folder_ = *TempDir::Create();
  std::filesystem::path program_;
};

// ---- floats ----

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, Attribute>;

struct FloatLayer {
  std::string op;
  Ints x;       // dims of the first input
  Ints w = {};  // dims of the weights, if there are any
  Attributes attributes = {};
};

// Odd sizes and unequal paddings, strides and kernels: a wrong row, column, channel or border gives
// another number.
std::vector<FloatLayer> FloatLayers() {
  const std::string upper = "SAME_UPPER", lower = "SAME_LOWER";
  return {
      {"Conv", {1, 3, 15, 13}, {10, 3, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"Conv",
       {2, 3, 23, 17},
       {20, 3, 7, 7},
       {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}}},
      {"Conv", {1, 16, 11, 7}, {24, 16, 3, 3}, {{"auto_pad", upper}, {"strides", Ints{2, 2}}}},
      {"Conv", {1, 17, 8, 9}, {9, 17, 5, 4}, {{"auto_pad", lower}}},
      {"Conv",
       {1, 8, 9, 14},
       {8, 8, 3, 3},
       {{"pads", Ints{2, 0, 1, 3}}, {"dilations", Ints{2, 1}}}},
      {"Conv", {1, 32, 5, 7}, {40, 32, 1, 1}},
      {"Conv", {1, 24, 9, 11}, {52, 24, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"Conv",
       {1, 24, 9, 11},
       {52, 24, 3, 3},
       {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}},
      {"Conv", {1, 32, 9, 7}, {16, 32, 1, 1}, {{"strides", Ints{2, 2}}}},
      {"Conv", {1, 12, 7, 9}, {18, 4, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"group", int64_t{3}}}},
      {"Conv", {1, 21, 9, 11}, {21, 1, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"group", int64_t{21}}}},
      {"Conv",
       {1, 16, 13, 9},
       {16, 1, 5, 5},
       {{"auto_pad", upper}, {"strides", Ints{2, 2}}, {"group", int64_t{16}}}},
      {"Conv", {2, 5, 31}, {7, 5, 4}, {{"pads", Ints{1, 2}}, {"strides", Ints{3}}}},
      {"ConvTranspose", {1, 8, 5, 6}, {8, 6, 3, 3}, {{"strides", Ints{2, 2}}}},
      {"MatMul", {3, 7, 33}, {33, 37}},
      {"Gemm", {5, 19}, {23, 19}, {{"transB", int64_t{1}}}},
      {"MaxPool",
       {1, 11, 9, 7},
       {},
       {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}},
      {"AveragePool",
       {1, 16, 9, 7},
       {},
       {{"kernel_shape", Ints{3, 2}}, {"pads", Ints{1, 0, 1, 1}}, {"strides", Ints{2, 1}}}},
      {"GlobalAveragePool", {2, 13, 5, 7}},
      {"Softmax", {3, 5, 29}, {}, {{"axis", int64_t{1}}}},
      {"ReduceMax", {3, 5, 29}},
      {"Transpose", {3, 5, 29}, {}, {{"perm", Ints{2, 0, 1}}}},
      {"Tanh", {3, 41}},
  };
}

// Two convolutions of any size, the second of which reads the first one's layout. The first input
// of its graph, as its symbols say.
ValueId SymbolicImages(Graph& graph) {
  const Dim n = Dim::OfSymbol(graph.symbols->AddInput("n", {0, 0}, {1, 8}));
  const Dim height = Dim::OfSymbol(graph.symbols->AddInput("height", {0, 2}, {5, 40}));
  const ValueId x = graph.AddInput("images", Type::Tensor(DataType::kF32, {n, 3, height, 11}));
  const Attributes padded = {{"pads", Ints{1, 1, 1, 1}}};
  const ValueId first =
      Node1(graph, "Relu",
            {Node1(graph, "Conv", {x, graph.AddConstant("w", Values({16, 3, 3, 3}, 3))}, padded)});
  const ValueId second =
      Node1(graph, "Conv", {first, graph.AddConstant("v", Values({16, 16, 3, 3}, 4))}, padded);
  graph.outputs.push_back(Node1(graph, "Add", {second, first}));
  const ValueId pooled = Node1(graph, "GlobalAveragePool", {Node1(graph, "Tanh", {second})});
  return Node1(graph, "Flatten", {pooled});
}

// Attention of all queries, of several blocks of keys, and of one query; two heads share keys.
void AddAttention(Graph& graph) {
  for (const auto& [steps, keys] : {std::pair<int64_t, int64_t>{21, 21}, {9, 401}, {1, 67}}) {
    const auto input = [&](int64_t rows, int64_t heads) {
      return graph.AddInput("x", Type::Tensor(DataType::kF32, {1, rows, heads * 11}));
    };
    const std::vector<ValueId> inputs = {input(steps, 4), input(keys, 2), input(keys, 2)};
    graph.outputs.push_back(Node1(graph, "Attention", inputs,
                                  {{"q_num_heads", int64_t{4}},
                                   {"kv_num_heads", int64_t{2}},
                                   {"is_causal", int64_t{steps == keys}}}));
  }
}

// Every layer is an output of its own.
Graph FloatGraph() {
  Graph graph;
  graph.name = "floats";
  const ValueId flat = SymbolicImages(graph);
  uint64_t seed = 100;
  for (const FloatLayer& layer : FloatLayers()) {
    const ValueId x = graph.AddInput(
        "x", Type::Tensor(DataType::kF32, std::vector<Dim>(layer.x.begin(), layer.x.end())));
    std::vector<ValueId> inputs = {x};
    if (!layer.w.empty()) inputs.push_back(graph.AddConstant("w", Values(layer.w, ++seed)));
    graph.outputs.push_back(Node1(graph, layer.op, inputs, layer.attributes));
  }
  AddAttention(graph);
  for (const DataType dtype : {DataType::kI4, DataType::kU8}) {  // weights that stay integers
    Tensor integers = Tensor::Zeros(dtype, {16, 512});
    for (size_t i = 0; i < integers.bytes().size(); ++i)
      integers.mutable_bytes()[i] = static_cast<std::byte>(i * 89);
    const ValueId real =
        Node1(graph, "DequantizeLinear",
              {graph.AddConstant("q", integers), graph.AddConstant("scale", Values({4, 512}, 5))},
              {{"axis", int64_t{0}}, {"block_size", int64_t{4}}});
    graph.outputs.push_back(Node1(graph, "MatMul", {flat, real}));
  }
  Infer(graph);
  return graph;
}

TEST_P(QemuTest, FloatsAreTheInterpreters) {
  const Graph graph = FloatGraph();
  const std::vector<Tensor> inputs =
      RandomInputs(InputsOf(graph), 7, {{"n", 2}, {"height", 9}}).value();
  const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
  std::vector<std::pair<std::string, int>> builds;
  for (const int level : {0, 1, 2}) builds.emplace_back(cross_.target, level);
  for (const std::string& target : Targets()) builds.emplace_back(target, 3);
  for (const auto& [target, level] : builds) {
    const absl::StatusOr<std::vector<Tensor>> actual =
        Run(graph, Library(graph, target, level), inputs, target);
    ASSERT_TRUE(actual.ok()) << target << ", level " << level << ": " << actual.status();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LE(RelativeError((*actual)[i], expected[i]), 1e-5)
          << target << ", level " << level << ", output " << i << " (`"
          << graph.value(graph.outputs[i]).name << "`)";
    }
  }
}

TEST_P(QemuTest, HalvesAreTheInterpreters) {
  for (const DataType type : {DataType::kF16, DataType::kBF16}) {
    Graph all;
    all.name = fmt::format("halves in {}", DataTypeName(type));
    std::vector<Tensor> inputs;
    for (const HalfLayer& layer : HalfLayers()) {
      if (layer.name == "long rows") continue;  // minutes of emulation
      const Graph graph = HalfGraph(layer, type);
      const std::vector<ValueId> values = AppendGraph(all, graph, layer.name);
      for (const ValueId input : graph.inputs)
        all.inputs.push_back(values[static_cast<size_t>(input)]);
      all.outputs.push_back(values[static_cast<size_t>(graph.outputs[0])]);
    }
    Infer(all);
    inputs = RandomInputs(InputsOf(all), 3).value();
    const std::vector<Tensor> expected = ops::Evaluate(all, inputs).value();
    std::vector<std::string> targets = {cross_.target};
    if (cross_.target == "aarch64") targets.insert(targets.end(), {"aarch64-fp16", "aarch64-bf16"});
    for (const std::string& target : targets) {
      const Compiled& compiled = Library(all, target, 3);
      const absl::StatusOr<std::vector<Tensor>> actual = Run(all, compiled, inputs, target);
      ASSERT_TRUE(actual.ok()) << target << ": " << actual.status();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LE(RelativeError((*actual)[i], expected[i]), HalfTolerance(compiled, type))
            << target << ", " << DataTypeName(type) << ", " << all.value(all.outputs[i]).name;
      }
    }
  }
}

TEST_P(QemuTest, LongSumsOfHalvesAreExact) {
  if (cross_.target != "aarch64") return;
  const Graph graph = LongHalfSums();
  const std::vector<Tensor> inputs = LongHalfInputs(graph);
  const std::vector<Tensor> expected = ops::Evaluate(graph, inputs).value();
  CompileOptions options;
  options.target = "aarch64-fp16";
  const Compiled compiled = CompileGraph(graph, options).value();
  ASSERT_EQ(HalfSums(compiled), static_cast<int64_t>(graph.nodes.size()));
  const absl::StatusOr<std::vector<Tensor>> actual = Run(graph, compiled, inputs, options.target);
  ASSERT_TRUE(actual.ok()) << actual.status();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(RelativeError((*actual)[i], expected[i]), 0) << graph.nodes[i].op << " " << i;
}

// ---- bytes ----

// The outputs of a graph on this CPU.
std::vector<Tensor> OnThisCpu(const Graph& graph, const std::vector<Tensor>& inputs) {
  const Compiled compiled = CompileGraph(graph).value();
  return Artifact::Open(compiled.library(), 1).value()->Run(inputs).value();
}

struct ByteCase {
  Graph graph;
  std::vector<Tensor> inputs;
  Tensor expected;
};

// Every layer and function of bytes. Expected are the bits that the integers mean, or, after functions
// of floats, those of this CPU.
const std::vector<ByteCase>& ByteCases() {
  static const std::vector<ByteCase> cases = [] {
    std::vector<Graph> graphs = ByteFunctions();
    for (const ByteLayer& layer : ByteLayers()) graphs.push_back(ByteGraph(layer));
    const size_t exact = graphs.size();
    for (const ByteLayer& layer : ByteActivations()) graphs.push_back(ByteGraph(layer));
    std::vector<ByteCase> made;
    for (size_t g = 0; g < graphs.size(); ++g) {
      const Graph& graph = graphs[g];
      const std::vector<Tensor> inputs = ByteInputs(graph);
      const std::vector<Tensor> expected =
          g < exact ? ops::Evaluate(InIntegers(graph), inputs).value() : OnThisCpu(graph, inputs);
      made.push_back({graph, inputs, expected[0]});
    }
    return made;
  }();
  return cases;
}

// On the target of the program half of the cases, on others whose libraries it opens fewer.
TEST_P(QemuTest, IntegersHaveTheSameBits) {
  std::vector<const ByteCase*> all;
  for (const ByteCase& each : ByteCases()) all.push_back(&each);
  for (const std::string& target : Targets()) {
    const std::vector<const ByteCase*> cases = Sample(all, target == cross_.target ? 2 : 6);
    Graph graph;  // one output for each
    graph.name = fmt::format("{} layers of bytes from {} on", cases.size(), cases[0]->graph.name);
    std::vector<Tensor> inputs;
    for (const ByteCase* each : cases) {
      const std::vector<ValueId> values = AppendGraph(graph, each->graph, each->graph.name);
      for (const ValueId input : each->graph.inputs)
        graph.inputs.push_back(values[static_cast<size_t>(input)]);
      inputs.insert(inputs.end(), each->inputs.begin(), each->inputs.end());
      graph.outputs.push_back(values[static_cast<size_t>(each->graph.outputs[0])]);
    }
    Infer(graph);
    const absl::StatusOr<std::vector<Tensor>> actual =
        Run(graph, Library(graph, target, 3), inputs, target);
    ASSERT_TRUE(actual.ok()) << actual.status();
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto a = (*actual)[i].bytes(), b = cases[i]->expected.bytes();
      EXPECT_EQ((*actual)[i].dims(), cases[i]->expected.dims());
      EXPECT_TRUE(std::ranges::equal(a, b)) << target << ", " << cases[i]->graph.name;
    }
  }
}

std::vector<Cross> Crosses() {
  const std::string arm64 = "llvm -mtriple=aarch64-linux-gnu -mattr=";
  return {
      {"aarch64",
       "aarch64-linux-gnu-gcc",
       "qemu-aarch64",
       "/usr/aarch64-linux-gnu",
       {"aarch64-dotprod", "aarch64-i8mm", "aarch64-bf16", "aarch64-fp16", "android/cpu",
        "llvm -mtriple=aarch64-linux-gnu -emulate-matrices"},
       {arm64 + "+sve,+dotprod", "raspberry-pi/5", "aws/graviton3"}},
      {"armv7",
       "arm-linux-gnueabihf-gcc",
       "qemu-arm",
       "/usr/arm-linux-gnueabihf",
       {"llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a5 -mattr=+neon"},
       {"raspberry-pi/3b-32", "llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a55"}},
      {"armv7-softfp",
       "arm-linux-gnueabi-gcc -march=armv7-a -mfpu=neon-vfpv4 -mfloat-abi=softfp",
       "qemu-arm",
       "/usr/arm-linux-gnueabi",
       {"android/armv7"}},
      {"x86-64-v2", "gcc", "qemu-x86_64", "/", {"android/x86_64"}},
      // Narrower variants of one library, which read the panels of the widest one.
      {"x86-64", "gcc", "qemu-x86_64 -cpu Haswell", "/", {}, {}, 2, "x86_64_on_haswell"},
      {"x86-64", "gcc", "qemu-x86_64 -cpu Nehalem", "/", {}, {}, 2, "x86_64_on_nehalem"},
      {"i686",
       "i686-linux-gnu-gcc",
       "qemu-i386",
       "/usr/i686-linux-gnu",
       {"llvm -mtriple=i686-linux-gnu -mcpu=nehalem"},
       {},
       1},  // qemu-i386 7.2 never returns from atomic additions of 64 bits in two threads
  };
}

INSTANTIATE_TEST_SUITE_P(Cpus, QemuTest, ::testing::ValuesIn(Crosses()), [](const auto& test) {
  std::string name = test.param.name.empty() ? test.param.target : test.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace quench::codegen::qemu_test
