// Random graphs that are valid by construction: each node's types are inferred and its values computed
// while the graph grows, and a node that would be refused, or whose results rounding decides, is not
// kept. (Shapes that are solved node by node: NNSmith, Liu et al., ASPLOS 2023.)
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ir/graph.h"

namespace quench::fuzz {

using Ints = std::vector<int64_t>;
using Attributes = std::map<std::string, Attribute>;
using DataTypes = std::vector<DataType>;

// Kinds of numbers in a graph.
enum class Family : uint8_t {
  kIndices,  // functions of their index, no two alike: a wrong address shows
  kWhole,    // small whole numbers: sums and products have no rounding that could hide something
  kBytes,    // as kIndices, with QuantizeLinear and DequantizeLinear around many values
};

// A graph and what it is run on.
struct Specimen {
  Graph graph;
  Family family = Family::kIndices;
  std::vector<Tensor> inputs;
  std::map<std::string, int64_t> sizes;  // of its symbols
};

// A tensor of any type of floats or whole bytes, with the values rounded or cut to it.
Tensor OfNumbers(DataType type, const Ints& dims, const std::vector<double>& values);

// Operators that graphs were made of.
struct Statistics {
  std::map<std::string, int64_t> nodes, refused;  // by operator
  std::set<std::pair<std::string, std::string>> neighbours;
  bool why = false;  // print what was refused
};

// The draws of one graph.
struct Dice {
  std::mt19937_64 engine;
  int bodies = 0;                              // begun so far
  int64_t Integer(int64_t low, int64_t high);  // inclusive; `low` where there are none
  bool Chance(double probability);
  double Real(double low, double high);
  template <typename T>
  const T& Of(const std::vector<T>& all) {
    return all[static_cast<size_t>(Integer(0, static_cast<int64_t>(all.size()) - 1))];
  }
  template <typename T>
  T Pick(std::initializer_list<T> all) {
    return Of(std::vector<T>(all));
  }
};

class Grower {
 public:
  Grower(Dice& dice, Family family, DataType main, Statistics& statistics,
         std::shared_ptr<SymbolTable> symbols, int depth);

  // ---- what rules draw from ----
  Dice& dice;
  Family family() const { return family_; }
  DataType main() const { return main_; }  // the float type of most values
  int depth() const { return depth_; }     // of bodies around this graph
  bool why() const { return statistics_.why; }

  // A value of one of the types and of a rank in the range: one that is there, or a new one.
  ValueId Value(const DataTypes& types, int min_rank = 0, int max_rank = 5);
  ValueId Float(int min_rank = 0, int max_rank = 5);
  // The same, of exactly these sizes.
  ValueId ValueOf(DataType type, const Ints& dims);
  // An operand that broadcasts to the sizes of `value`.
  ValueId Broadcastable(ValueId value);
  // New ones: an input of the graph or a constant.
  ValueId Fresh(DataType type, const Ints& dims, bool constant = false);
  ValueId Given(Tensor tensor, bool constant = false, bool fixed = false);  // fixed: no symbols
  ValueId Integers(const Ints& values, bool constant = false);              // i64, of rank 1
  ValueId Scalar(int64_t value, bool constant = false);
  ValueId FloatScalar(DataType type, double value, bool constant = true);
  Ints SomeDims(int min_rank, int max_rank, int64_t largest = 6);

  const Tensor& tensor(ValueId id) const { return tensors_[static_cast<size_t>(id)]; }
  const Ints& dims(ValueId id) const { return tensor(id).dims(); }
  DataType dtype(ValueId id) const { return tensor(id).dtype(); }
  int rank(ValueId id) const { return tensor(id).rank(); }

  // ---- what rules make ----
  // Whether the node is valid and its results are such that rounding does not decide them; else
  // nothing has changed but that the operator counts as refused.
  bool Add(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {},
           int outputs = 1);
  ValueId last(int output = 0) const;  // of the node added last
  // Appends an input of a body with its value on the outer graph's tensors.
  ValueId AddBodyInput(const std::string& name, Type type, Tensor value);

  // One operator by its rule, or any if "".
  bool Step(const std::string& op = "");
  // Takes what nobody reads, and a few others, as outputs.
  void Finish();

  Graph graph;
  std::vector<Tensor> inputs() const;

 private:
  struct Mark {
    size_t values, nodes, inputs;
    SymbolTable symbols;
  };
  Mark Save() const;
  void Restore(const Mark& mark);
  bool Evaluate(const Node& node, std::vector<Tensor>& outputs) const;
  bool IsExact(ValueId id) const;
  bool StaysWhenMoved(const Node& node, const std::vector<Tensor>& outputs, double direction);
  bool IsSettled(const Node& node, const std::vector<Tensor>& outputs);
  std::vector<Dim> WithSymbols(const Ints& dims, int input);
  Tensor Numbers(DataType type, const Ints& dims);

  Family family_;
  DataType main_;
  Statistics& statistics_;
  int depth_;
  int body_;                     // number of this body, 0 for the graph itself
  Ints sizes_;                   // that many values have, so that axes can be mistaken for others
  std::vector<Tensor> tensors_;  // by ValueId
};

// The graph of a seed; the same for the same seed.
Specimen Grow(uint64_t seed, Statistics& statistics);

// A way to add an operator: whether it did. A rule of several operators is told which one it is for.
using Rule = bool (*)(Grower&, const std::string& op);
struct RuleRow {
  std::vector<std::string> ops;
  Rule rule;
};
std::vector<RuleRow> PointwiseRules();
std::vector<RuleRow> MovementRules();
std::vector<RuleRow> LayerRules();
std::vector<RuleRow> ControlRules();
const std::map<std::string, Rule>& AllRules();

// Operators of the catalogue that no rule makes, and why.
const std::map<std::string, std::string>& WithoutRule();

}  // namespace quench::fuzz
