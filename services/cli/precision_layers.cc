#include "services/cli/precision_layers.h"

#include <absl/strings/str_split.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "common/passes/float16.h"

namespace quench::cli {
namespace {

constexpr std::string_view kLayers[] = {"Conv", "ConvTranspose", "Gemm", "MatMul",
                                        "LSTM", "GRU",           "RNN"};

bool IsLayer(const Node& node) {
  return std::find(std::begin(kLayers), std::end(kLayers), node.op) != std::end(kLayers);
}

class Finder {
 public:
  Finder(const Graph& module, const TimedBuilds& builds)
      : graph_(module), builds_(builds), parent_(module.nodes.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      nodes_of_[NameInModel(graph_.nodes[i])].push_back(i);
    readers_.resize(graph_.values.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id != kNone) readers_[static_cast<size_t>(id)].push_back(i);
      }
    }
  }

  std::vector<PrecisionLayer> Run() {
    for (const auto& [precision, kernels] : builds_) {
      std::set<size_t> named;
      for (const TimedKernel& kernel : kernels) {
        const std::vector<size_t> products = Products(kernel);
        for (const size_t product : products) Join(products[0], product);
        named.insert(products.begin(), products.end());
      }
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        if (IsLayer(graph_.nodes[i]) && !named.contains(i)) JoinNext(i);
      }
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (IsLayer(graph_.nodes[i])) AddTo(LayerOf(i), i);
    }
    for (const auto& [precision, kernels] : builds_) {
      for (const TimedKernel& kernel : kernels) AddKernel(precision, kernel);
    }
    for (const auto& [from, to] : between_) AddBetween(from, to);
    return std::move(layers_);
  }

 private:
  size_t Root(size_t i) { return parent_[i] == i ? i : parent_[i] = Root(parent_[i]); }
  void Join(size_t a, size_t b) {
    const size_t first = std::min(Root(a), Root(b)), second = std::max(Root(a), Root(b));
    parent_[second] = first;
  }

  std::vector<size_t> NodesOf(const TimedKernel& kernel) const {
    std::vector<size_t> nodes;
    std::vector<std::string> names = absl::StrSplit(kernel.nodes, '+');
    for (const std::string& name : names) {
      if (const auto found = nodes_of_.find(name); found != nodes_of_.end())
        nodes.insert(nodes.end(), found->second.begin(), found->second.end());
    }
    return nodes;
  }

  std::vector<size_t> Products(const TimedKernel& kernel) const {
    std::vector<size_t> nodes = NodesOf(kernel);
    std::erase_if(nodes, [&](size_t i) { return !IsLayer(graph_.nodes[i]); });
    return nodes;
  }

  // Layers that are reached from a node, or, backwards, that it is computed from, through other nodes;
  // `seen` has those others.
  std::set<size_t> Reached(size_t from, bool forward, std::set<size_t>& seen) const {
    std::set<size_t> reached;
    std::vector<size_t> open{from};
    while (!open.empty()) {
      const Node& node = graph_.nodes[open.back()];
      open.pop_back();
      for (const ValueId id : forward ? node.outputs : node.inputs) {
        if (id == kNone) continue;
        std::vector<size_t> next;
        const NodeId producer = graph_.value(id).producer;
        if (forward) next = readers_[static_cast<size_t>(id)];
        if (!forward && producer != kNone) next.push_back(static_cast<size_t>(producer));
        for (const size_t i : next) {
          if (IsLayer(graph_.nodes[i])) {
            reached.insert(i);
          } else if (seen.insert(i).second) {
            open.push_back(i);
          }
        }
      }
    }
    return reached;
  }

  void JoinNext(size_t product) {
    std::set<size_t> seen;
    const std::set<size_t> next = Reached(product, true, seen);
    if (next.empty()) return;
    Join(product, *next.begin());
    between_.emplace(product, *next.begin());
  }

  PrecisionLayer& LayerOf(size_t product) {
    const auto [known, fresh] = layer_of_.emplace(Root(product), layers_.size());
    if (fresh) {
      layers_.emplace_back();
      layers_.back().name = NameInModel(graph_.nodes[product]);
      layers_.back().op = graph_.nodes[product].op;
    }
    return layers_[known->second];
  }

  void AddTo(PrecisionLayer& layer, size_t product) {
    const Node& node = graph_.nodes[product];
    layer.products.push_back(node.name);
    if (taken_.insert(NameInModel(node)).second) layer.members.push_back(NameInModel(node));
  }

  void AddKernel(Precision precision, const TimedKernel& kernel) {
    const std::vector<size_t> products = Products(kernel);
    if (products.empty()) return;
    PrecisionLayer& layer = LayerOf(products[0]);
    layer.microseconds[precision] += kernel.microseconds;
    for (const size_t i : NodesOf(kernel)) {
      const std::string& name = NameInModel(graph_.nodes[i]);
      if (taken_.insert(name).second) layer.members.push_back(name);
    }
  }

  // Nodes between two products of one layer are the layer's.
  void AddBetween(size_t from, size_t to) {
    std::set<size_t> after, before;
    Reached(from, true, after);
    Reached(to, false, before);
    PrecisionLayer& layer = LayerOf(from);
    for (const size_t i : after) {
      const std::string& name = NameInModel(graph_.nodes[i]);
      if (before.contains(i) && taken_.insert(name).second) layer.members.push_back(name);
    }
  }

  const Graph& graph_;
  const TimedBuilds& builds_;
  std::vector<size_t> parent_;  // by node: products that are one layer
  std::map<std::string, std::vector<size_t>> nodes_of_;
  std::vector<std::vector<size_t>> readers_;  // by value
  std::set<std::pair<size_t, size_t>> between_;
  std::map<size_t, size_t> layer_of_;  // by root
  std::set<std::string> taken_;        // names that are some layer's
  std::vector<PrecisionLayer> layers_;
};

// Layers none of whose products became integers.
void ForbidIntegers(const Graph& module, const quantizer::QuantizeReport& report,
                    std::vector<PrecisionLayer>& layers) {
  std::map<std::string, std::string> in_float;  // by either name of a product, the reason
  for (const quantizer::LayerChoice& choice : report.layers) {
    if (!choice.quantized) in_float[choice.node] = choice.reason;
  }
  std::map<std::string, std::string> origins;
  for (const Node& node : module.nodes) origins[node.name] = node.origin;
  for (PrecisionLayer& layer : layers) {
    std::string reason;
    const bool all =
        std::all_of(layer.products.begin(), layer.products.end(), [&](const std::string& product) {
          auto found = in_float.find(origins.at(product));
          if (found == in_float.end()) found = in_float.find(product);
          if (found != in_float.end()) reason = found->second;
          return found != in_float.end();
        });
    if (all) layer.why_not[Precision::kInt8] = reason;
  }
}

}  // namespace

std::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kF16:
      return "f16";
    case Precision::kBF16:
      return "bf16";
    case Precision::kInt8:
      break;
  }
  return "int8";
}

DataType StoredAs(Precision precision) {
  return precision == Precision::kF16    ? DataType::kF16
         : precision == Precision::kBF16 ? DataType::kBF16
                                         : DataType::kF32;
}

const std::string& NameInModel(const Node& node) {
  return node.origin.empty() ? node.name : node.origin;
}

void ForbidTypes(const Graph& module, const passes::PassOptions& passes,
                 const quantizer::QuantizeReport* integers, std::vector<PrecisionLayer>& layers) {
  std::map<std::string, size_t> node_of;  // by its own name
  for (size_t i = 0; i < module.nodes.size(); ++i) node_of[module.nodes[i].name] = i;
  for (const Precision type : {Precision::kF16, Precision::kBF16}) {
    passes::PassOptions options = passes;
    options.store_as = StoredAs(type);
    const std::vector<std::string> reasons = passes::WhyFloat32(module, options);
    for (PrecisionLayer& layer : layers) {
      for (const std::string& product : layer.products) {
        const std::string& reason = reasons[node_of.at(product)];
        if (!reason.empty()) layer.why_not[type] = reason;
      }
    }
  }
  if (integers != nullptr) ForbidIntegers(module, *integers, layers);
  for (PrecisionLayer& layer : layers) {
    for (const auto& [type, why] : layer.why_not) layer.microseconds.erase(type);
  }
}

std::vector<PrecisionLayer> FindLayers(const Graph& module, const TimedBuilds& builds) {
  return Finder(module, builds).Run();
}

}  // namespace quench::cli
