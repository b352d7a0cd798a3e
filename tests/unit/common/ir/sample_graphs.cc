#include "tests/unit/common/ir/sample_graphs.h"

#include <cmath>
#include <limits>
#include <random>

namespace quench::testing {
namespace {

Type F32(std::vector<Dim> dims) { return Type::Tensor(DataType::kF32, std::move(dims)); }

Type Wrap(ValueKind kind, Type element, DataType key = DataType::kUndefined) {
  Type type;
  type.kind = kind;
  type.dtype = key;
  type.element = {std::move(element)};
  return type;
}

GraphPtr FusedBody(const Graph& g, Type type) {
  Graph body;
  body.name = "conv + relu";
  body.symbols = g.symbols;
  body.stage = g.stage;
  const ValueId a = body.AddInput("a", type);
  const ValueId relu = body.node(body.AddNode("Relu", "r", {a})).outputs[0];
  body.value(relu).type = type;
  Graph inner;
  inner.symbols = g.symbols;
  inner.stage = g.stage;
  inner.outputs = {inner.AddInput("only", type)};
  const NodeId last =
      body.AddNode("If", "if", {relu}, 1, {{"then_branch", std::make_shared<const Graph>(inner)}});
  body.value(body.node(last).outputs[0]).type = type;
  body.outputs = body.node(last).outputs;
  return std::make_shared<const Graph>(std::move(body));
}

}  // namespace

Graph EverythingGraph() {
  Graph g;
  g.name = "every \"thing\"";
  g.metadata = {{"producer", "tests"}, {"doc", "two\nlines"}};
  SymbolTable& t = *g.symbols;
  const Dim n = Dim::OfSymbol(t.AddInput("n", {0, 0}, {2, 64}, 2));
  const Dim m = Dim::OfSymbol(t.AddInput("past + now", {0, 1}));
  const Dim k = Dim::OfSymbol(t.AddRuntime("count", "nonzero", t.Mul(n, m)));
  const Dim free = Dim::OfSymbol(t.AddRuntime("free", "nonzero", std::nullopt));
  Dim deep = n;
  for (int i = 0; i < 12; ++i) deep = t.FloorDiv(t.Add(t.Mul(deep, m), i + 3), t.Add(m, i));
  const ValueId x = g.AddInput("x", F32({n, m, 3}));
  const ValueId y = g.AddInput("y", F32({t.Mod(n, 7), t.Max(n, m), deep}));
  const ValueId w =
      g.AddConstant("w", Tensor::Of<float>(DataType::kF32, {2, 2}, {1, -2.5, 1e-30f, 0.1f}));
  std::vector<float> many(2000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i) / 3;
  Attribute attributes[] = {
      int64_t{-3},
      0.1,
      std::string("a \"b\" \\ \n \x01 \xc3\xa9"),
      std::vector<int64_t>{1, std::numeric_limits<int64_t>::min()},
      std::vector<int64_t>(),
      std::vector<double>{1, -0.0, std::numeric_limits<double>::infinity(), std::nan("")},
      std::vector<double>(),
      std::vector<std::string>{"a", ""},
      std::vector<std::string>(),
      Tensor::I64({1, 2}),
      Tensor::Strings({1, 2}, {"x", "\"y\""}),
      Type(F32({n, 4}))};
  Node* node = &g.node(g.AddNode("Everything", "all", {x, kNone, w}, 3));
  for (size_t i = 0; i < std::size(attributes); ++i)
    node->attributes["a" + std::to_string(i)] = attributes[i];
  node->origin = "/model/all";
  const std::vector<ValueId> all = node->outputs;
  g.value(all[0]).type = F32({t.FloorDiv(t.Add(n, 1), 2), k, free});
  g.value(all[1]).type = Wrap(ValueKind::kSequence, Wrap(ValueKind::kOptional, F32({})));
  g.value(all[2]).type = Wrap(
      ValueKind::kMap, Type{ValueKind::kTensor, DataType::kI32, false, {}, {}}, DataType::kI64);
  const NodeId shape = g.AddNode("Shape", "shape", {x});
  g.value(g.node(shape).outputs[0]).type = Type::Tensor(DataType::kI64, {3});
  g.value(g.node(shape).outputs[0]).elements = std::vector<Dim>{n, t.Sub(m, 1), -1};
  const NodeId fused =
      g.AddNode("q.fused", "fused", {y}, 1, {{"body", FusedBody(g, g.value(y).type)}});
  g.value(g.node(fused).outputs[0]).type = g.value(y).type;
  g.value(g.node(fused).outputs[0]).name = "result";
  const NodeId quiet = g.AddNode("Quiet", "quiet", {}, 0);
  g.node(quiet).outputs = {};
  g.outputs = {all[0], g.node(fused).outputs[0], w, x};
  return g;
}

Graph EveryConstantGraph() {
  Graph g;
  g.name = "constants";
  std::mt19937 random(3);
  for (int i = 1; i < kDataTypeCount; ++i) {
    const auto dtype = static_cast<DataType>(i);
    const std::string name = std::string(DataTypeName(dtype));
    if (dtype == DataType::kString) {
      g.outputs.push_back(
          g.AddConstant(name, Tensor::Strings({3}, {"", std::string("\0\n\"", 3), "\xff\xfe"})));
      continue;
    }
    // Seven elements: sub-byte types end in the middle of a byte. All codes of the small types,
    // random others.
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{256}}) {
      Tensor tensor =
          Tensor::Zeros(dtype, count == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{count});
      const size_t bytes = tensor.bytes().size();
      for (size_t b = 0; b < bytes; ++b) {
        tensor.mutable_bytes()[b] =
            static_cast<std::byte>(count == 256 && bytes == 256 ? b : random());
      }
      const int64_t used_bits = count * DataTypeBits(dtype) % 8;
      if (bytes > 0 && used_bits != 0)
        tensor.mutable_bytes()[bytes - 1] &= static_cast<std::byte>((1 << used_bits) - 1);
      if (dtype == DataType::kBool) {
        for (size_t b = 0; b < bytes; ++b) tensor.mutable_bytes()[b] &= std::byte{1};
      }
      g.outputs.push_back(g.AddConstant(name + "_" + std::to_string(count), tensor));
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  g.outputs.push_back(g.AddConstant(
      "special", Tensor::Of<float>(DataType::kF32, {6},
                                   {inf, -inf, std::nanf(""), -std::nanf("7"), -0.0f, 1e-45f})));
  return g;
}

Graph ImportedGraph() {
  Graph g;
  g.name = "imported";
  g.stage = Stage::kImported;
  const ValueId x = g.AddInput("/x:0", F32({1, 3}));
  const ValueId y = g.AddInput("123", Type{ValueKind::kTensor, DataType::kF32, false, {}, {}});
  const NodeId relu = g.AddNode("Relu", "/layer/Relu", {x});
  g.node(relu).version = 13;
  g.node(relu).origin = "/layer/Relu";
  g.value(g.node(relu).outputs[0]).name = "/layer/Relu_output_0";
  Graph body;
  body.symbols = g.symbols;
  body.stage = g.stage;
  const ValueId captured = body.AddValue("/layer/Relu_output_0");
  const NodeId neg = body.AddNode("Neg", "neg", {captured});
  body.outputs = body.node(neg).outputs;
  const NodeId custom =
      g.AddNode("Strange Op", "custom", {g.node(relu).outputs[0], y}, 2,
                {{"then_branch", std::make_shared<const Graph>(body)}, {"odd name", 1.5}});
  g.node(custom).domain = "com.microsoft";
  g.node(custom).version = 1;
  g.node(custom).outputs[1] = kNone;
  g.values.pop_back();
  g.outputs = {g.node(custom).outputs[0]};
  return g;
}

Graph RandomGraph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Graph g;
  g.name = "random " + std::to_string(seed);
  SymbolTable& t = *g.symbols;
  std::vector<Dim> dims = {1, 2, 7, 0};
  for (int i = 0; i < 3; ++i) {
    dims.push_back(Dim::OfSymbol(t.AddInput("d" + std::to_string(i), {i, 0},
                                            {1 + static_cast<int64_t>(pick(3)), 40},
                                            1 + static_cast<int64_t>(pick(2)))));
  }
  for (int i = 0; i < 20; ++i) {
    const Dim a = dims[pick(dims.size())];
    const Dim b = dims[pick(dims.size())];
    const Dim positive = b.is(0) ? Dim(3) : b;
    const Dim made[] = {
        t.Add(a, b),       t.Mul(a, b), t.Max(a, b), t.Min(a, b), t.FloorDiv(a, positive),
        t.Mod(a, positive)};
    dims.push_back(made[pick(std::size(made))]);
  }
  std::erase_if(dims, [](Dim dim) { return dim.is_static() && dim.value() < 0; });
  std::vector<ValueId> values;
  const auto type = [&] {
    std::vector<Dim> shape(pick(4));
    for (Dim& dim : shape) dim = dims[pick(dims.size())];
    return Type::Tensor(static_cast<DataType>(1 + pick(kDataTypeCount - 1)), shape);
  };
  for (int i = 0; i < 3; ++i)
    values.push_back(g.AddInput("in", F32({dims[4 + static_cast<size_t>(i)]})));
  for (size_t i = 0, n = 1 + pick(12); i < n; ++i) {
    if (pick(5) == 0)
      values.push_back(g.AddConstant("c", Tensor::I64({static_cast<int64_t>(random())})));
    std::vector<ValueId> inputs(pick(4));
    for (ValueId& input : inputs) input = pick(6) == 0 ? kNone : values[pick(values.size())];
    const NodeId id =
        g.AddNode("Op" + std::to_string(pick(5)), "node", inputs, 1 + static_cast<int>(pick(2)));
    for (ValueId output : g.node(id).outputs) {
      g.value(output).type = type();
      values.push_back(output);
    }
    if (pick(3) == 0) g.node(id).attributes["body"] = FusedBody(g, type());
    if (pick(3) == 0)
      g.node(id).attributes["x"] =
          std::ldexp(static_cast<double>(random()), static_cast<int>(pick(60)) - 30);
  }
  g.outputs = {values.back()};
  return g;
}

}  // namespace quench::testing
