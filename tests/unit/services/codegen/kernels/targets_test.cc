// Every hand-written kernel becomes a library on every target, without a symbol from elsewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/files.h"
#include "services/codegen/emit/module.h"
#include "services/codegen/forms/any_form.h"
#include "services/codegen/kernels/catalogue.h"
#include "services/codegen/link/link.h"
#include "services/codegen/schedule/plan_nest.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/kernels/reference.h"

namespace quench::codegen::targets_test {
namespace {

Graph ConvGraph(int64_t ic, int64_t oc, int64_t k, int64_t group, bool symbolic) {
  Graph graph;
  const Dim size = symbolic ? Dim::OfSymbol(graph.symbols->AddInput("size", {0, 2})) : Dim(9);
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {1, ic, size, size}));
  const ValueId w = graph.AddConstant("w", RandomTensor({oc, ic / group, k, k}, 1));
  const std::vector<int64_t> pads(4, k / 2);
  const NodeId node = graph.AddNode("Conv", "conv", {x, w}, 1, {{"pads", pads}, {"group", group}});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {1, oc, size, size});
  graph.outputs = {graph.node(node).outputs[0]};
  Fuse(graph, [](Graph& body, ValueId root, const auto&) {
    return Pointwise(body, "Gelu", {Pointwise(body, "Sigmoid", {root}, root)}, root);
  });
  return graph;
}

// Bytes; the weights decide the form of multiplication where a target has several.
Graph ByteConvGraph(int64_t ic, int64_t oc, int64_t k, int64_t group, int largest) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kU8, {1, ic, 9, 9}));
  Tensor weights = Tensor::Zeros(DataType::kI8, {oc, ic / group, k, k});
  for (int64_t i = 0; i < weights.size(); ++i)
    weights.mutable_bytes()[i] = static_cast<std::byte>(i % 2 == 0 ? largest : -largest);
  const std::vector<int64_t> pads(4, k / 2);
  const NodeId node = graph.AddNode("ConvInteger", "conv", {x, graph.AddConstant("w", weights)}, 1,
                                    {{"pads", pads}, {"group", group}});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kI32, {1, oc, 9, 9});
  graph.outputs = {graph.node(node).outputs[0]};
  return graph;
}

Graph AttentionGraph() {
  Graph graph;
  const Dim seq = Dim::OfSymbol(graph.symbols->AddInput("seq", {0, 1}));
  const ValueId a = graph.AddInput("a", Type::Tensor(DataType::kF32, {4, seq, 24}));
  const ValueId b = graph.AddInput("b", Type::Tensor(DataType::kF32, {4, 24, seq}));
  const NodeId node = graph.AddNode("MatMul", "matmul", {a, b});
  graph.value(graph.node(node).outputs[0]).type = Type::Tensor(DataType::kF32, {4, seq, seq});
  return graph;
}

std::vector<Graph> Graphs() {
  std::vector<Graph> graphs;
  graphs.push_back(ConvGraph(3, 20, 3, 1, false));
  graphs.push_back(ConvGraph(32, 64, 1, 1, true));
  graphs.push_back(ConvGraph(32, 64, 3, 2, true));
  graphs.push_back(ConvGraph(24, 24, 3, 24, true));
  graphs.push_back(AttentionGraph());
  for (const int largest : {60, 127, 128}) graphs.push_back(ByteConvGraph(16, 24, 3, 1, largest));
  graphs.push_back(ByteConvGraph(24, 24, 3, 24, 127));
  return graphs;
}

TEST(KernelTargets, EveryKernelLinksForEveryTarget) {
  for (const char* name :
       {"x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "aarch64", "aarch64-dotprod",
        "aarch64-bf16", "x86-64-v4-bf16", "x86-64-v4-fp16", "x86-64-v4-amx", "armv7"}) {
    const Target target = ResolveTarget(name).value()[0];
    auto module = ModuleBuilder::Create(target);
    ASSERT_TRUE(module.ok()) << module.status();
    size_t emitted = 0;
    const std::vector<Graph> graphs = Graphs();
    for (const Graph& graph : graphs) {
      const KernelRequest request{
          graph, graph.nodes.back(), target, {.opt_level = 3}, *graph.symbols};
      std::vector<Candidate> candidates;
      for (const Kernel* kernel : {&ConvKernel(), &DepthwiseKernel(), &MatMulKernel()}) {
        Propose(*kernel, request, candidates);
      }
      ASSERT_FALSE(candidates.empty()) << name;
      for (const Candidate& candidate : candidates) {
        EXPECT_GT(candidate.cost, 0) << name << " " << candidate.reason;
        const auto plan = PlanKernel(request, candidate);
        ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
        std::vector<KernelPlan> plans = {*plan};
        if (candidate.preparation) plans.push_back(PlanPreparation(candidate));
        for (const KernelPlan& each : plans) {
          const auto kernel = (*module)->Emit(each);
          ASSERT_TRUE(kernel.ok()) << name << ": " << kernel.status();
        }
        ++emitted;
      }
    }
    EXPECT_GE(emitted, graphs.size() + 1);  // the first layer also from a row-major input
    const auto object = (*module)->Finish();
    ASSERT_TRUE(object.ok()) << name << ": " << object.status();
    const auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok());
    ASSERT_TRUE(WriteFileAtomically(folder->path() / "k.o", *object).ok());
    const absl::Status linked =
        LinkShared(target, {folder->path() / "k.o"}, "k.so", folder->path() / "k.so");
    EXPECT_TRUE(linked.ok()) << name << ": " << linked;
  }
}

// Calls visit(kernel, candidate, symbols) for the candidates of hand-written kernels, at the level at which each
// variation is one.
void ForEachPlan(const std::function<void(const Candidate&, SymbolTable&)>& visit) {
  for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4-vnni", "x86-64-v4-fp16", "armv7"}) {
    const Target target = ResolveTarget(name).value()[0];
    for (const Graph& graph : Graphs()) {
      SymbolTable symbols = *graph.symbols;
      const KernelRequest request{graph, graph.nodes.back(), target, {.opt_level = 4}, symbols};
      std::vector<Candidate> candidates;
      for (const Kernel* kernel : AllKernels()) Propose(*kernel, request, candidates);
      std::set<std::string> texts;
      for (const Candidate& candidate : candidates) {
        if (candidate.code == nullptr) continue;
        SCOPED_TRACE(std::string(name) + ": " + candidate.kernel->name + ", " + candidate.reason);
        visit(candidate, symbols);
        EXPECT_TRUE(texts.insert(candidate.kernel->name + candidate.code->Text(symbols)).second);
      }
      EXPECT_FALSE(texts.empty());
    }
  }
}

TEST(Plans, HaveATextThatParses) {
  size_t symbolic = 0;
  ForEachPlan([&](const Candidate& candidate, SymbolTable& symbols) {
    const std::string text = candidate.code->Text(symbols);
    const absl::StatusOr<std::string> read = candidate.kernel->reread(text, symbols);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
    symbolic += text.find("size") != std::string::npos;
  });
  EXPECT_GT(symbolic, 10u);
}

TEST(Plans, HoldAFormByItsName) {
  SymbolTable symbols;
  for (const char* text : {R"({"form":{"pairs":{"type":"f16"}}})", R"({"form":{"picked":{}}})",
                           R"({"form":{"stored":{"weights":{"bits":4},"unpack":true}}})"}) {
    const absl::StatusOr<std::string> read = MatMulKernel().reread(text, symbols);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
  for (const char* form : {R"({"pears":{}})", R"({})", R"(["pairs"])", R"({"pairs":{},"bytes":{}})",
                           R"({"pairs":{"way":1}})", R"({"bytes":{"products":"sums"}})"}) {
    EXPECT_FALSE(MatMulKernel().reread(fmt::format(R"({{"form":{}}})", form), symbols).ok());
  }
}

// Forms differ by their kind, and by their own fields.
TEST(Plans, FormsCompare) {
  EXPECT_EQ(AnyForm(), AnyForm(FloatForm()));
  EXPECT_FALSE(AnyForm(ByteForm()) == AnyForm(PickedForm()));
  EXPECT_FALSE(AnyForm(PairForm(DataType::kF16)) == AnyForm(PairForm(DataType::kBF16)));
}

TEST(Plans, MoveToAnotherTableOfSymbols) {
  ForEachPlan([&](const Candidate& candidate, SymbolTable& symbols) {
    SymbolTable other;
    other.AddInput("first", {7, 7});  // so that ids differ
    const auto moved =
        candidate.code->WithDims([&](Dim dim) { return other.Import(symbols, dim, {}); });
    EXPECT_EQ(moved->Text(other), candidate.code->Text(symbols));
  });
}

TEST(Plans, BadTextsAreRefusedWithEveryMistake) {
  SymbolTable symbols;
  const auto read = ConvKernel().reread(
      R"({"lanes": "eight", "tile": {"x": 6, "z": 1}, "tasks": "no such", "shape": {"x_type": "f31"}})",
      symbols);
  ASSERT_FALSE(read.ok());
  for (const char* part : {"plan.lanes is \"eight\", it must be an integer of 32 bits",
                           "plan.tile: there is no field `z`", "plan.tasks",
                           "plan.shape.x_type is \"f31\", it must be a data type"}) {
    EXPECT_THAT(std::string(read.status().message()), ::quench::testing::HasSubstr(part));
  }
  EXPECT_FALSE(ConvKernel().reread("{", symbols).ok());
  for (const char* text : {R"({"lanes":4294967304})", R"({"blocks":18446744073709551615})",
                           R"({"tasks":18446744073709551615})"}) {
    EXPECT_FALSE(ConvKernel().reread(text, symbols).ok()) << text;
  }
  const std::string deep(200000, '[');
  const auto nested =
      ConvKernel().reread("{\"lanes\":" + deep + std::string(deep.size(), ']') + "}", symbols);
  ASSERT_FALSE(nested.ok());
  EXPECT_LT(nested.status().message().size(), 200u);
}

}  // namespace
}  // namespace quench::codegen::targets_test
