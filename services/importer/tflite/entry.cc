#include "services/importer/tflite/entry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "services/importer/graph/names.h"

namespace quench::importer {
namespace {

constexpr int64_t kMaxOperators = 250'000;  // of the file
constexpr int64_t kMaxInlined = 50'000;     // more of them, as subgraphs are read wherever they run

// Counts operators, each subgraph once: what it runs is a sum of counts that are known.
class OperatorCount {
 public:
  explicit OperatorCount(const tflite::Model& model) : model_(model) {}

  struct Extent {
    int64_t operators = 0;
    int height = 0;  // of subgraphs within it
  };

  // `needed`: of which operators; null for all.
  absl::StatusOr<Extent> Of(uint32_t number, const std::vector<bool>* needed, int depth) {
    const auto known = known_.find(number);
    if (depth + (known == known_.end() ? 0 : known->second.height) > kMaxModelNesting)
      return TooDeep();
    if (known != known_.end()) return known->second;
    const tflite::SubGraph& subgraph = *model_.subgraphs()->Get(number);
    Extent extent;
    for (uint32_t i = 0; i < SizeOf(subgraph.operators()); ++i) {
      if (needed != nullptr && !(*needed)[i]) continue;
      const tflite::Operator& op = *subgraph.operators()->Get(i);
      ++own_;
      ++extent.operators;
      std::vector<int64_t> called = SubgraphsOf(op);
      // A condition is computed before the loop and in it.
      if (op.builtin_options_as_WhileOptions() != nullptr) called.push_back(called[0]);
      for (const int64_t other : called) {
        QUENCH_ASSIGN_OR_RETURN(const Extent inside,
                                Of(static_cast<uint32_t>(other), nullptr, depth + 1));
        extent.operators = std::min(extent.operators + inside.operators, kMost);
        extent.height = std::max(extent.height, inside.height + 1);
      }
    }
    return known_[number] = extent;
  }

  int64_t own() const { return own_; }

 private:
  static constexpr int64_t kMost = int64_t{1} << 40;

  static absl::Status TooDeep() {
    return InvalidArgument("subgraphs run one another more than {} deep", kMaxModelNesting);
  }

  const tflite::Model& model_;
  std::map<uint32_t, Extent> known_;
  int64_t own_ = 0;
};

}  // namespace

std::vector<int32_t> Indices(const flatbuffers::Vector<int32_t>* list) {
  return list == nullptr ? std::vector<int32_t>()
                         : std::vector<int32_t>(list->begin(), list->end());
}

std::string TensorName(const tflite::SubGraph& subgraph, int32_t tensor) {
  const auto* given = subgraph.tensors()->Get(static_cast<uint32_t>(tensor))->name();
  const std::string name = given == nullptr ? "" : Printable(given->str());
  const std::string first = name.substr(0, name.find(';'));
  return first.empty() ? fmt::format("tensor_{}", tensor) : first;
}

absl::StatusOr<Entry> EntryOf(const tflite::Model& model, const ImportOptions& options) {
  Entry entry;
  if (!options.signature.empty()) {
    std::vector<std::string> known;
    const tflite::SignatureDef* found = nullptr;
    for (uint32_t i = 0; i < SizeOf(model.signature_defs()); ++i) {
      const tflite::SignatureDef* signature = model.signature_defs()->Get(i);
      const auto* key = signature->signature_key();
      known.push_back(key == nullptr ? "" : Printable(key->str()));
      if (known.back() == options.signature) found = signature;
    }
    if (found == nullptr) {
      return InvalidArgument(
          "the model has no signature `{}`, {}", options.signature,
          known.empty() ? "it has none" : fmt::format("it has `{}`", fmt::join(known, "`, `")));
    }
    entry.subgraph = found->subgraph_index();
    for (const auto* list : {found->inputs(), found->outputs()}) {
      for (uint32_t i = 0; i < SizeOf(list); ++i) {
        const auto* name = list->Get(i)->name();
        const auto tensor = static_cast<int32_t>(list->Get(i)->tensor_index());
        if (name != nullptr) entry.names.emplace(tensor, Printable(name->str()));
        (list == found->inputs() ? entry.inputs : entry.outputs).push_back(tensor);
      }
    }
  }
  const tflite::SubGraph& subgraph = *model.subgraphs()->Get(entry.subgraph);
  if (options.signature.empty()) {
    entry.inputs = Indices(subgraph.inputs());
    entry.outputs = Indices(subgraph.outputs());
  }
  if (options.outputs.empty()) return entry;
  entry.outputs.clear();
  StatusCollector problems;
  for (const std::string& name : options.outputs) {
    int32_t tensor = -1;
    for (uint32_t i = 0; i < SizeOf(subgraph.tensors()) && tensor < 0; ++i) {
      const auto named = entry.names.find(static_cast<int32_t>(i));
      if (TensorName(subgraph, static_cast<int32_t>(i)) == name ||
          (named != entry.names.end() && named->second == name))
        tensor = static_cast<int32_t>(i);
    }
    if (tensor < 0)
      problems.Add(InvalidArgument("the model is cut at `{}`, which is not a tensor of it", name));
    entry.outputs.push_back(tensor);
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return entry;
}

std::vector<bool> NeededOperators(const tflite::SubGraph& subgraph, const Entry& entry,
                                  const ImportOptions& options) {
  const uint32_t count = SizeOf(subgraph.operators());
  std::vector<bool> needed(count, options.outputs.empty());
  if (!options.outputs.empty()) {
    std::vector<bool> wanted(SizeOf(subgraph.tensors()), false);
    for (const int32_t tensor : entry.outputs) wanted[static_cast<size_t>(tensor)] = true;
    for (uint32_t i = count; i-- > 0;) {
      const tflite::Operator& op = *subgraph.operators()->Get(i);
      for (const int32_t tensor : Indices(op.outputs()))
        needed[i] = needed[i] || (tensor >= 0 && wanted[static_cast<size_t>(tensor)]);
      if (!needed[i]) continue;
      for (const int32_t tensor : Indices(op.inputs())) {
        if (tensor >= 0) wanted[static_cast<size_t>(tensor)] = true;
      }
    }
  }
  return needed;
}

absl::Status CheckOperators(const tflite::Model& model, const Entry& entry,
                            const std::vector<bool>& needed) {
  OperatorCount count(model);
  QUENCH_ASSIGN_OR_RETURN(const OperatorCount::Extent whole, count.Of(entry.subgraph, &needed, 0));
  if (count.own() > kMaxOperators) {
    return absl::ResourceExhaustedError(
        fmt::format("the model has {} operators, at most {} are read", count.own(), kMaxOperators));
  }
  if (whole.operators - count.own() > kMaxInlined) {
    return absl::ResourceExhaustedError(
        fmt::format("the model has {} operators with the subgraphs that it runs, and {} in the "
                    "file: at most {} more are read",
                    whole.operators, count.own(), kMaxInlined));
  }
  return absl::OkStatus();
}

bool IsStructural(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      "IF",        "WHILE",      "CALL",          "STABLEHLO_COMPOSITE",
      "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"};
  return kNames.contains(name);
}

absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupportedTflite(const TfliteFile& file,
                                                                 const FindConversion& find,
                                                                 const ImportOptions& options) {
  const tflite::Model& model = *file.model;
  QUENCH_ASSIGN_OR_RETURN(const Entry entry, EntryOf(model, options));
  const std::vector<bool> needed =
      NeededOperators(*model.subgraphs()->Get(entry.subgraph), entry, options);
  std::map<std::pair<std::string, std::string>, UnsupportedOp> found;
  std::set<uint32_t> seen;
  std::vector<uint32_t> pending = {entry.subgraph};
  while (!pending.empty()) {
    const uint32_t number = pending.back();
    pending.pop_back();
    if (!seen.insert(number).second) continue;
    const tflite::SubGraph& subgraph = *model.subgraphs()->Get(number);
    for (uint32_t i = 0; i < SizeOf(subgraph.operators()); ++i) {
      if (number == entry.subgraph && !needed[i]) continue;
      const tflite::Operator& op = *subgraph.operators()->Get(i);
      for (const int64_t called : SubgraphsOf(op)) pending.push_back(static_cast<uint32_t>(called));
      const std::string name = OperatorName(model, op);
      const std::string domain(OperatorDomain(model, op));
      if (IsStructural(name) || find(domain, name) != nullptr) continue;
      UnsupportedOp& unsupported = found[{domain, name}];
      unsupported.domain = domain;
      unsupported.op = name;
      unsupported.opset = OperatorVersion(model, op);
      const std::vector<int32_t> outputs = Indices(op.outputs());
      unsupported.nodes.push_back(outputs.empty() || outputs[0] < 0
                                      ? fmt::format("{}_{}", name, i)
                                      : TensorName(subgraph, outputs[0]));
    }
  }
  std::vector<UnsupportedOp> ops;
  for (auto& [key, op] : found) ops.push_back(std::move(op));
  return ops;
}

}  // namespace quench::importer
