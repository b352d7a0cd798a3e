#include "services/codegen/check/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "services/codegen/check/compare.h"
#include "services/codegen/check/part.h"

namespace quench::codegen {
namespace {

// The name without what store_float16 adds.
std::string WithoutHalf(const std::string& name) {
  for (const std::string_view suffix : {".f16", ".bf16"}) {
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

std::string KindOf(const PlannedVariant& variant, int node) {
  if (node < 0) return "";
  const KernelReport& kernel = variant.built.reports[static_cast<size_t>(node)];
  return fmt::format("{} {} {}", kernel.kernel, kernel.op, kernel.reason);
}

std::map<ValueId, Counterpart> FindCounterparts(const Graph& source, const Program& program,
                                                bool quantized) {
  const ValueIds ids = ValueIdsOf(source);
  std::map<ValueId, Counterpart> counterparts;
  for (ReadableValue& each : ReadableValues(program)) {
    std::optional<ValueId> found = Find(ids, each.shown.name);
    if (!found) found = Find(ids, WithoutHalf(each.shown.name));
    if (!found || source.value(*found).producer == quench::kNone) continue;
    const Type& type = source.value(*found).type;
    const DataType compiled = program.buffers[static_cast<size_t>(each.shown.buffer)].shape.dtype;
    const bool both_float = IsFloat(type.dtype) && IsFloat(compiled);
    if (both_float && quantized) continue;
    if (type.kind != ValueKind::kTensor ||
        (type.dtype != compiled && !both_float && !AreBytes(type.dtype, compiled)))
      continue;
    const std::string name = each.shown.name;
    counterparts.emplace(*found, Counterpart{std::move(each), name});
  }
  return counterparts;
}

}  // namespace

CheckGroups FindGroups(const Graph& source, const PlannedVariant& variant, bool quantized) {
  CheckGroups found;
  found.counterparts = FindCounterparts(source, variant.built.program, quantized);
  for (const auto& [id, counterpart] : found.counterparts) found.given.insert(id);
  std::set<ValueId> targets = found.given;
  for (const ValueId id : source.outputs) {
    if (source.value(id).producer != quench::kNone) targets.insert(id);
  }
  for (const Node& node : source.nodes) {
    for (const ValueId id : node.outputs) {
      if (id == quench::kNone || !targets.contains(id)) continue;
      CheckGroup group{id, -1, "", 0};
      const auto counterpart = found.counterparts.find(id);
      if (counterpart != found.counterparts.end())
        group.node = counterpart->second.readable.shown.node;
      group.kind = KindOf(variant, group.node);
      for (const NodeId each : PartBetween(source, found.given, {id}).nodes)
        group.seconds += InterpreterSeconds(source, source.node(each));
      if (quantized) group.seconds *= 2;  // what groups hide is computed, too
      if (!group.kind.empty()) found.kinds.insert(group.kind);
      found.groups.push_back(std::move(group));
    }
  }
  return found;
}

std::vector<size_t> ChooseGroups(const std::vector<CheckGroup>& groups, double seconds) {
  std::vector<size_t> order(groups.size()), chosen;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return groups[a].seconds < groups[b].seconds; });
  std::set<std::string> had;
  std::set<size_t> taken;
  for (const bool once : {true, false}) {
    for (const size_t i : order) {
      if (taken.contains(i) || groups[i].seconds > seconds || groups[i].kind.empty()) continue;
      if (once && !had.insert(groups[i].kind).second) continue;
      taken.insert(i);
      chosen.push_back(i);
      seconds -= groups[i].seconds;
    }
  }
  return chosen;
}

}  // namespace quench::codegen
