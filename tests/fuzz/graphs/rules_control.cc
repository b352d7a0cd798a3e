// If, Loop and Scan, with bodies that grow like the graph around them; and what has no rule.
#include <algorithm>

#include "tests/fuzz/graphs/grower.h"

namespace quench::fuzz {
namespace {

constexpr int kDeepest = 2;

// Values of the graph around that a body captures: of any type, few.
std::vector<ValueId> Captures(Grower& g) {
  std::vector<ValueId> captures;
  for (int64_t i = g.dice.Integer(1, 3); i > 0; --i) {
    const ValueId id = g.Value({g.main(), g.main(), DataType::kI64});
    if (std::find(captures.begin(), captures.end(), id) == captures.end()) captures.push_back(id);
  }
  return captures;
}

Grower Inner(Grower& g, Statistics& statistics) {
  return Grower(g.dice, g.family(), g.main(), statistics, g.graph.symbols, g.depth() + 1);
}

void Capture(Grower& g, Grower& body, const std::vector<ValueId>& captures) {
  for (const ValueId id : captures)
    body.AddBodyInput(g.graph.value(id).name, g.graph.value(id).type, g.tensor(id));
}

void GrowBody(Grower& body) {
  const auto wanted = static_cast<size_t>(body.dice.Integer(1, 4));
  for (int tries = 0; tries < 20 && body.graph.nodes.size() < wanted; ++tries) body.Step();
}

// A value of the body of this very type and these sizes, else `fallback` itself.
ValueId Alike(Grower& body, DataType type, const Ints& dims, ValueId fallback) {
  std::vector<ValueId> fitting;
  for (size_t i = 0; i < body.graph.values.size(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (body.graph.value(id).producer == kNone || body.dtype(id) != type || body.dims(id) != dims)
      continue;
    if (body.graph.value(id).type == body.graph.value(fallback).type) fitting.push_back(id);
  }
  return fitting.empty() ? fallback : body.dice.Of(fitting);
}

GraphPtr Shared(Grower& body) { return std::make_shared<const Graph>(body.graph); }

// Both branches give values of the same types: one of the captures, changed or not.
bool If(Grower& g, const std::string& op) {
  if (g.depth() >= kDeepest) return false;
  const std::vector<ValueId> captures = Captures(g);
  Attributes bodies;
  Statistics inner;
  inner.why = g.why();
  for (const char* name : {"then_branch", "else_branch"}) {
    Grower body = Inner(g, inner);
    Capture(g, body, captures);
    GrowBody(body);
    for (size_t i = 0; i < captures.size(); ++i) {
      const ValueId input = body.graph.inputs[i];
      ValueId out = Alike(body, body.dtype(input), body.dims(input), input);
      if (out == input || body.graph.IsOutput(out)) {
        if (!body.Add(IsFloat(body.dtype(input)) ? "Tanh" : "Neg", {input})) return false;
        out = body.last();
      }
      body.graph.outputs.push_back(out);
    }
    bodies[name] = Shared(body);
  }
  const ValueId condition =
      g.Given(Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{g.dice.Chance(0.5)}));
  std::vector<ValueId> inputs = {condition};
  inputs.insert(inputs.end(), captures.begin(), captures.end());
  return g.Add(op, inputs, bodies, static_cast<int>(captures.size()));
}

// States that stay of one type, and values that are collected.
bool Loop(Grower& g, const std::string& op) {
  if (g.depth() >= kDeepest) return false;
  std::vector<ValueId> all = Captures(g);
  // Two states of one type may trade places.
  const bool pair = g.dice.Chance(0.4) && g.graph.value(all[0]).type.is_static();
  if (pair) all.insert(all.begin() + 1, g.Fresh(g.dtype(all[0]), g.dims(all[0]), true));
  const auto carried =
      static_cast<size_t>(g.dice.Integer(pair ? 2 : 1, static_cast<int64_t>(all.size())));
  Statistics inner;
  inner.why = g.why();
  Grower body = Inner(g, inner);
  const ValueId iteration = body.AddBodyInput("iteration", Type::Tensor(DataType::kI64, {}),
                                              Tensor::I64({1}).Reshaped({}));
  const ValueId going = body.AddBodyInput("going", Type::Tensor(DataType::kBool, {}),
                                          Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1}));
  Capture(g, body, all);
  const int outer = g.graph.symbols->size();
  GrowBody(body);
  ValueId condition = going;
  if (g.dice.Chance(0.3)) {
    const ValueId last = body.Given(Tensor::I64({g.dice.Integer(0, 3)}).Reshaped({}), true);
    if (!body.Add("Less", {iteration, last})) return false;
    condition = body.last();
  } else if (!body.Add("Identity", {going})) {
    return false;
  } else {
    condition = body.last();
  }
  body.graph.outputs.push_back(condition);
  const bool trade = pair && g.dice.Chance(0.5);
  for (size_t i = 0; i < carried; ++i) {
    const ValueId state = body.graph.inputs[i + 2];
    if (trade && i < 2) {
      if (!body.Add("Identity", {body.graph.inputs[3 - i]})) return false;
      body.graph.outputs.push_back(body.last());
      continue;
    }
    ValueId next = Alike(body, body.dtype(state), body.dims(state), state);
    if (next == state || body.graph.IsOutput(next)) {
      if (!body.Add(IsFloat(body.dtype(state)) ? "Tanh" : "Neg", {state})) return false;
      next = body.last();
    }
    body.graph.outputs.push_back(next);
  }
  size_t collected = 0;
  if (g.dice.Chance(0.6)) {
    const ValueId each = body.Value({g.main(), DataType::kI64});
    // Rows whose sizes the iterations tell are refused.
    const std::vector<Dim>& dims = body.graph.value(each).type.dims;
    if (!std::ranges::all_of(dims,
                             [&](Dim dim) { return dim.is_static() || dim.symbol() < outer; }))
      return false;
    if (!body.Add("Identity", {each})) return false;
    body.graph.outputs.push_back(body.last());
    ++collected;
  }
  std::vector<ValueId> inputs = {g.Scalar(g.dice.Integer(0, 3)), kNone};
  inputs.insert(inputs.end(), all.begin(), all.end());
  return g.Add(op, inputs,
               {{"body", Shared(body)}, {"q.captures", static_cast<int64_t>(all.size() - carried)}},
               static_cast<int>(carried + collected));
}

// A state that becomes longer with each iteration.
bool GrowingLoop(Grower& g, const std::string&) {
  if (g.depth() >= kDeepest) return false;
  const ValueId start = g.Float(1, 3);
  if (g.tensor(start).size() == 0 || g.dims(start)[0] > 6) return false;
  Statistics inner;
  inner.why = g.why();
  Grower body = Inner(g, inner);
  body.AddBodyInput("iteration", Type::Tensor(DataType::kI64, {}), Tensor::I64({0}).Reshaped({}));
  const ValueId going = body.AddBodyInput("going", Type::Tensor(DataType::kBool, {}),
                                          Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1}));
  const ValueId state = body.AddBodyInput("state", g.graph.value(start).type, g.tensor(start));
  const ValueId row = body.AddBodyInput("row", g.graph.value(start).type, g.tensor(start));
  GrowBody(body);
  if (!body.Add("Identity", {going})) return false;
  body.graph.outputs = {body.last()};
  if (!body.Add("Tanh", {state})) return false;
  if (!body.Add("Concat", {body.last(), row}, {{"axis", int64_t{0}}})) return false;
  body.graph.outputs.push_back(body.last());
  return g.Add("Loop", {g.Scalar(g.dice.Integer(0, 3)), kNone, start, start},
               {{"body", Shared(body)}, {"q.captures", int64_t{1}}}, 1);
}

bool Scan(Grower& g, const std::string& op) {
  if (g.depth() >= kDeepest) return false;
  const ValueId rows = g.Float(2, 4);
  if (g.dims(rows)[0] == 0) return false;
  const Ints slice(g.dims(rows).begin() + 1, g.dims(rows).end());
  const ValueId start = g.ValueOf(g.dtype(rows), slice);
  if (g.tensor(rows).size() == 0 || !g.graph.value(rows).type.is_static() ||
      !g.graph.value(start).type.is_static())
    return false;
  Statistics inner;
  inner.why = g.why();
  Grower body = Inner(g, inner);
  const Type type = Type::Tensor(g.dtype(rows), std::vector<Dim>(slice.begin(), slice.end()));
  const ValueId state = body.AddBodyInput("state", type, g.tensor(start));
  const auto bytes = g.tensor(rows).bytes().size() / static_cast<size_t>(g.dims(rows)[0]);
  Tensor first = Tensor::Zeros(g.dtype(rows), slice);
  std::copy_n(g.tensor(rows).bytes().begin(), bytes, first.mutable_bytes());
  const ValueId row = body.AddBodyInput("row", type, std::move(first));
  GrowBody(body);
  if (!body.Add("Add", {Alike(body, g.dtype(rows), slice, state), row})) return false;
  if (!body.Add("Tanh", {body.last()})) return false;
  const ValueId next = body.last();
  if (!body.Add("Neg", {body.Float()})) return false;
  body.graph.outputs = {next, body.last()};
  return g.Add(op, {start, rows}, {{"body", Shared(body)}, {"num_scan_inputs", int64_t{1}}}, 2);
}

}  // namespace

std::vector<RuleRow> ControlRules() {
  return {
      {{"If"}, If}, {{"Loop"}, Loop}, {{"loop of growing states"}, GrowingLoop}, {{"Scan"}, Scan}};
}

const std::map<std::string, std::string>& WithoutRule() {
  static const std::map<std::string, std::string> reasons = {
      {"Constant", "importers make it a constant value"},
      {"q.attention", "a pass makes it of attention by hand and of Attention"},
      {"q.average_pool", "a pass makes it of averages of bytes"},
      {"q.dims", "inference makes it of sizes that are known before a run"},
      {"q.fail", "inference makes it of a branch that cannot run"},
      {"q.fused", "a pass makes it of neighbours"},
      {"q.gru", "a pass makes it of GRU"},
      {"q.lstm", "a pass makes it of LSTM"},
      {"q.partition", "its nodes are put back before anything is compiled"},
      {"q.rnn", "a pass makes it of RNN"},
      {"q.sequence_matmul", "a pass makes it of recurrent layers"},
      {"q.table", "a pass makes it of functions of bytes"},
      {"q.weight_only_matmul", "a pass makes it of products with integers for weights"},
  };
  return reasons;
}

}  // namespace quench::fuzz
