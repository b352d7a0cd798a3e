#include "common/ir/hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "common/base/overloaded.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench {
namespace {

// Everything that enters a hash is tagged or has its length before it, so that no two different
// inputs give the same bytes.
class Hasher {
 public:
  explicit Hasher(std::string_view tag) { Text(tag); }
  Hasher& Number(uint64_t value) {
    std::array<std::byte, 8> bytes{};
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    sha_.Update(bytes);
    return *this;
  }
  Hasher& Signed(int64_t value) { return Number(static_cast<uint64_t>(value)); }
  Hasher& Text(std::string_view text) {
    Number(text.size());
    sha_.Update(text);
    return *this;
  }
  // All NaNs are one.
  Hasher& Float(double value) {
    return Number(std::isnan(value) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(value));
  }
  Hasher& Sorted(std::vector<std::string> parts) {
    std::sort(parts.begin(), parts.end());
    Number(parts.size());
    for (const std::string& part : parts) Text(part);
    return *this;
  }
  std::string Finish() { return sha_.HexDigest(); }

 private:
  Sha256 sha_;
};

// Hashes of all symbols of a table; operands have smaller ids, so one pass suffices.
class SymbolHashes {
 public:
  explicit SymbolHashes(const SymbolTable& table) : table_(table) {
    hashes_.reserve(static_cast<size_t>(table.size()));
    for (SymbolId id = 0; id < table.size(); ++id) hashes_.push_back(HashOf(id));
  }
  std::string Of(Dim dim) const {
    if (dim.is_static()) return Hasher("size").Signed(dim.value()).Finish();
    return hashes_[static_cast<size_t>(dim.symbol())];
  }

 private:
  std::string HashOf(SymbolId id) const {
    const Symbol& symbol = table_.at(id);
    return std::visit(
        Overloaded{
            [&](const InputAxis& axis) {
              return Hasher("axis")
                  .Signed(axis.input)
                  .Signed(axis.axis)
                  .Signed(symbol.min)
                  .Signed(symbol.max)
                  .Signed(symbol.multiple_of)
                  .Finish();
            },
            [&](const RuntimeSize& runtime) {
              return Hasher("runtime").Text(runtime.upper ? Of(*runtime.upper) : "").Finish();
            },
            [&](const Polynomial& polynomial) { return HashOf(polynomial); },
            [&](const DimBinary& binary) { return HashOf(binary); }},
        symbol.definition);
  }
  std::string HashOf(const Polynomial& polynomial) const {
    std::vector<std::string> terms;
    for (const Monomial& term : polynomial.terms) {
      std::vector<std::string> factors;
      for (SymbolId factor : term.factors) factors.push_back(hashes_[static_cast<size_t>(factor)]);
      terms.push_back(Hasher("term").Signed(term.coefficient).Sorted(std::move(factors)).Finish());
    }
    return Hasher("sum").Signed(polynomial.constant).Sorted(std::move(terms)).Finish();
  }
  std::string HashOf(const DimBinary& binary) const {
    switch (binary.op) {
      case DimOp::kMin:
      case DimOp::kMax: {
        // A chain of them is one set: its order follows symbol ids.
        std::vector<std::string> operands = {Of(binary.rhs)};
        Dim rest = binary.lhs;
        while (!rest.is_static()) {
          const auto* inner = std::get_if<DimBinary>(&table_.at(rest.symbol()).definition);
          if (inner == nullptr || inner->op != binary.op) break;
          operands.push_back(Of(inner->rhs));
          rest = inner->lhs;
        }
        operands.push_back(Of(rest));
        return Hasher(binary.op == DimOp::kMin ? "min" : "max")
            .Sorted(std::move(operands))
            .Finish();
      }
      case DimOp::kFloorDiv:
        return Hasher("floordiv").Text(Of(binary.lhs)).Text(Of(binary.rhs)).Finish();
      case DimOp::kCeilDiv:
        return Hasher("ceildiv").Text(Of(binary.lhs)).Text(Of(binary.rhs)).Finish();
      case DimOp::kMod:
        return Hasher("mod").Text(Of(binary.lhs)).Text(Of(binary.rhs)).Finish();
    }
    return "";
  }

  const SymbolTable& table_;
  std::vector<std::string> hashes_;
};

using ScopeNames = std::unordered_map<std::string, std::string>;  // value name -> hash

class GraphHasher {
 public:
  GraphHasher(const SymbolHashes& symbols, bool contents)
      : symbols_(symbols), contents_(contents) {}

  std::string Hash(const Graph& graph, bool outermost);

 private:
  std::string HashType(const Type& type) const;
  std::string HashTensor(const Tensor& tensor, const std::string& digest) const;
  std::string HashAttribute(const Attribute& attribute);
  std::string HashNode(const Node& node, const std::vector<std::string>& values);
  std::string HashFreeValue(const std::string& name) const;

  const SymbolHashes& symbols_;
  const bool contents_;
  std::vector<ScopeNames> scopes_;  // of the enclosing graphs: imported bodies capture by name
};

std::string GraphHasher::HashType(const Type& type) const {
  Hasher hasher("type");
  hasher.Number(static_cast<uint64_t>(type.kind)).Number(static_cast<uint64_t>(type.dtype));
  hasher.Number(type.ranked ? 1 : 0).Number(type.dims.size());
  for (Dim dim : type.dims) hasher.Text(symbols_.Of(dim));
  hasher.Number(type.element.size());
  for (const Type& element : type.element) hasher.Text(HashType(element));
  return hasher.Finish();
}

std::string GraphHasher::HashTensor(const Tensor& tensor, const std::string& digest) const {
  Hasher hasher("tensor");
  hasher.Number(static_cast<uint64_t>(tensor.dtype())).Number(tensor.dims().size());
  for (int64_t dim : tensor.dims()) hasher.Signed(dim);
  if (contents_) hasher.Text(digest.empty() ? TensorDigest(tensor) : digest);
  return hasher.Finish();
}

std::string GraphHasher::HashAttribute(const Attribute& attribute) {
  Hasher hasher("attribute");
  hasher.Number(attribute.index());
  std::visit(Overloaded{[&](int64_t value) { hasher.Signed(value); },
                        [&](double value) { hasher.Float(value); },
                        [&](const std::string& value) { hasher.Text(value); },
                        [&](const std::vector<int64_t>& values) {
                          hasher.Number(values.size());
                          for (int64_t value : values) hasher.Signed(value);
                        },
                        [&](const std::vector<double>& values) {
                          hasher.Number(values.size());
                          for (double value : values) hasher.Float(value);
                        },
                        [&](const std::vector<std::string>& values) {
                          hasher.Number(values.size());
                          for (const std::string& value : values) hasher.Text(value);
                        },
                        [&](const Tensor& tensor) { hasher.Text(HashTensor(tensor, "")); },
                        [&](const GraphPtr& body) { hasher.Text(Hash(*body, false)); },
                        [&](const Type& type) { hasher.Text(HashType(type)); }},
             attribute);
  return hasher.Finish();
}

std::string GraphHasher::HashNode(const Node& node, const std::vector<std::string>& values) {
  Hasher hasher("node");
  hasher.Text(node.op).Text(node.domain).Signed(node.version);
  hasher.Number(node.inputs.size());
  for (ValueId id : node.inputs) hasher.Text(id == kNone ? "" : values[static_cast<size_t>(id)]);
  hasher.Number(node.outputs.size());
  for (ValueId id : node.outputs) hasher.Number(id == kNone ? 0 : 1);
  hasher.Number(node.attributes.size());
  for (const auto& [name, attribute] : node.attributes)
    hasher.Text(name).Text(HashAttribute(attribute));
  return hasher.Finish();
}

std::string GraphHasher::HashFreeValue(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto it = scope->find(name); it != scope->end()) return it->second;
  }
  return Hasher("free").Finish();
}

std::string GraphHasher::Hash(const Graph& graph, bool outermost) {
  const bool names = outermost && contents_;
  Hasher result("quench.graph.1");
  std::vector<std::string> values(graph.values.size());
  ScopeNames scope;
  const auto define = [&](ValueId id, std::string hash) {
    scope[graph.value(id).name] = hash;
    values[static_cast<size_t>(id)] = std::move(hash);
  };
  result.Number(graph.inputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    // The types of a body's inputs follow from the node's operands.
    const Value& input = graph.value(graph.inputs[i]);
    const std::string type = outermost ? HashType(input.type) : "";
    define(graph.inputs[i],
           Hasher("input").Number(i).Number(outermost ? 1 : 0).Text(type).Finish());
    result.Text(type).Text(names ? input.name : "");
  }
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.constant != nullptr) {
      define(static_cast<ValueId>(i), HashTensor(value.constant->tensor, value.constant->digest));
    } else if (value.producer == kNone && values[i].empty()) {
      values[i] = HashFreeValue(value.name);
    }
  }

  std::vector<std::string> nodes;
  nodes.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    scopes_.push_back(std::move(scope));
    nodes.push_back(HashNode(node, values));
    scope = std::move(scopes_.back());
    scopes_.pop_back();
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != kNone)
        define(node.outputs[k], Hasher("output").Text(nodes.back()).Number(k).Finish());
    }
  }

  // Two equal nodes (two random draws, say) hash alike: who uses which tells them apart.
  std::vector<std::vector<std::string>> uses(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<ValueId>& inputs = graph.nodes[n].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] == kNone || graph.value(inputs[k]).producer == kNone) continue;
      uses[static_cast<size_t>(graph.value(inputs[k]).producer)].push_back(
          Hasher("use").Text(nodes[n]).Number(k).Finish());
    }
  }
  result.Number(graph.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& output = graph.value(graph.outputs[i]);
    result.Text(values[static_cast<size_t>(graph.outputs[i])]).Text(names ? output.name : "");
    if (output.producer != kNone) {
      uses[static_cast<size_t>(output.producer)].push_back(Hasher("result").Number(i).Finish());
    }
  }
  std::vector<std::string> used_nodes;
  used_nodes.reserve(nodes.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    used_nodes.push_back(Hasher("used").Text(nodes[n]).Sorted(std::move(uses[n])).Finish());
  }
  return result.Sorted(std::move(used_nodes)).Finish();
}

std::string HashGraph(const Graph& graph, bool contents) {
  const SymbolHashes symbols(*graph.symbols);
  return GraphHasher(symbols, contents).Hash(graph, true);
}

}  // namespace

std::string Fingerprint(const Graph& graph) { return HashGraph(graph, true); }

std::string StructureHash(const Graph& graph) { return HashGraph(graph, false); }

std::string TensorDigest(const Tensor& tensor) {
  if (tensor.dtype() != DataType::kString) return Sha256Hex(tensor.bytes());
  Sha256 sha;
  for (const std::string& text : tensor.strings()) {
    std::array<std::byte, 8> size{};
    for (size_t i = 0; i < 8; ++i)
      size[i] = static_cast<std::byte>(uint64_t{text.size()} >> (8 * i));
    sha.Update(size);
    sha.Update(text);
  }
  return sha.HexDigest();
}

Graph WithDigests(Graph graph) {
  std::unordered_map<const Constant*, std::shared_ptr<const Constant>> done;
  for (Value& value : graph.values) {
    if (value.constant == nullptr || !value.constant->digest.empty()) continue;
    if (value.constant->tensor.bytes().size() <= kMaxInlineBytes) continue;
    std::shared_ptr<const Constant>& known = done[value.constant.get()];
    if (known == nullptr) {
      auto hashed = std::make_shared<Constant>(*value.constant);
      hashed->digest = TensorDigest(hashed->tensor);
      known = std::move(hashed);
    }
    value.constant = known;
  }
  return graph;
}

}  // namespace quench
