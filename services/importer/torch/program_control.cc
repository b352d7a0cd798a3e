// Branches and loops that a run decides about.
#include <algorithm>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/program.h"

namespace quench::importer {
namespace {

bool IsLeaf(const TorchValue& value) {
  const char kind = KindOf(value);
  return kind == 't' || kind == 'i' || kind == 'f' || kind == 'b';
}

bool IsUninitialized(const TorchValue& value) {
  const auto* name = std::get_if<TorchName>(&value);
  return name != nullptr && name->text == "uninitialized";
}

bool AreSame(const TorchValue& a, const TorchValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* cell = std::get_if<CellPtr>(&a)) {
    const auto& other = std::get<CellPtr>(b);
    return *cell == other;
  }
  if (const auto* number = std::get_if<RuntimeNumber>(&a))
    return number->handle == std::get<RuntimeNumber>(b).handle;
  if (const auto* name = std::get_if<TorchName>(&a))
    return name->text == std::get<TorchName>(b).text;
  if (const auto* list = std::get_if<std::shared_ptr<TorchList>>(&a))
    return *list == std::get<std::shared_ptr<TorchList>>(b);
  if (const auto* dict = std::get_if<std::shared_ptr<TorchDict>>(&a))
    return *dict == std::get<std::shared_ptr<TorchDict>>(b);
  if (const auto* object = std::get_if<std::shared_ptr<TorchObject>>(&a))
    return *object == std::get<std::shared_ptr<TorchObject>>(b);
  if (const auto* text = std::get_if<std::string>(&a)) return *text == std::get<std::string>(b);
  if (const auto* integer = std::get_if<int64_t>(&a)) return *integer == std::get<int64_t>(b);
  if (const auto* real = std::get_if<double>(&a)) return *real == std::get<double>(b);
  if (const auto* flag = std::get_if<bool>(&a)) return *flag == std::get<bool>(b);
  return true;  // None
}

// Tensors and numbers of nested lists, in order.
void Flatten(const TorchValue& value, std::vector<TorchValue>& leaves) {
  if (IsLeaf(value)) leaves.push_back(value);
  if (const std::vector<TorchValue>* items = ItemsOf(value)) {
    for (const TorchValue& item : *items) Flatten(item, leaves);
  }
}

TorchValue Rebuild(const TorchValue& value, const std::vector<TorchValue>& leaves, size_t& next) {
  if (IsLeaf(value)) return leaves[next++];
  const auto* list = std::get_if<std::shared_ptr<TorchList>>(&value);
  if (list == nullptr) return value;
  std::vector<TorchValue> items;
  for (const TorchValue& item : (*list)->items) items.push_back(Rebuild(item, leaves, next));
  return MakeList(std::move(items), (*list)->is_tuple);
}

// Equal but for their tensors and numbers.
bool HaveOneShape(const TorchValue& a, const TorchValue& b) {
  if (IsLeaf(a) && IsLeaf(b)) return true;
  const std::vector<TorchValue>*first = ItemsOf(a), *second = ItemsOf(b);
  if (first == nullptr || second == nullptr) return AreSame(a, b);
  if (first->size() != second->size()) return false;
  for (size_t i = 0; i < first->size(); ++i) {
    if (!HaveOneShape((*first)[i], (*second)[i])) return false;
  }
  return true;
}

// A value that is one or the other, as the program sees it.
TorchValue LeafOf(const TorchValue& a, const TorchValue& b, Handle handle, const CellPtr& cell) {
  if (std::holds_alternative<CellPtr>(a) || std::holds_alternative<CellPtr>(b)) return cell;
  const char first = KindOf(a), second = KindOf(b);
  const auto kind = first == 'f' || second == 'f'   ? RuntimeNumber::Kind::kFloat
                    : first == 'b' && second == 'b' ? RuntimeNumber::Kind::kBool
                                                    : RuntimeNumber::Kind::kInt;
  return RuntimeNumber{handle, kind};
}

}  // namespace

// Tensors that were written to since then, each once, as they are now; and back to what they were.
std::vector<TorchProgram::Written> TorchProgram::TakeWritten(size_t from) {
  std::vector<Written> now;
  for (size_t i = written_.size(); i-- > from;) {
    Written& written = written_[i];
    const auto seen = std::find_if(
        now.begin(), now.end(), [&](const Written& other) { return other.cell == written.cell; });
    if (seen == now.end()) now.push_back({written.cell, written.cell->handle});
    written.cell->handle = written.before;
    ++written.cell->version;
    if (written.cell->base != nullptr) written.cell->base_version = UINT64_MAX;  // derived anew
  }
  written_.resize(from);
  std::erase_if(now, [&](const Written& written) {
    return written.cell->base != nullptr || !b.IsVisible(written.cell->handle);
  });
  return now;
}

absl::StatusOr<std::vector<TorchValue>> TorchProgram::If(const std::string& name,
                                                         const TorchValue& condition,
                                                         const Branch& then_branch,
                                                         const Branch& else_branch) {
  QUENCH_ASSIGN_OR_RETURN(const Handle flag, HandleOf(condition));
  const size_t mark = written_.size();
  const Branch* branches[2] = {&then_branch, &else_branch};
  std::shared_ptr<GraphBuilder::Body> bodies[2];
  absl::StatusOr<std::vector<TorchValue>> results[2];
  std::map<CellPtr, std::pair<Handle, Handle>> cells;
  for (size_t i = 0; i < 2; ++i) {
    bodies[i] = b.EnterNew();
    results[i] = (*branches[i])();
    for (size_t k = 0; results[i].ok() && k < results[i]->size(); ++k) {
      std::vector<TorchValue> leaves;
      Flatten((*results[i])[k], leaves);
      for (const TorchValue& leaf : leaves) {
        const auto* cell = std::get_if<CellPtr>(&leaf);
        if (cell == nullptr) continue;
        QUENCH_RETURN_IF_ERROR(RequireReal(*cell));
        QUENCH_RETURN_IF_ERROR(Sync(*cell));
      }
    }
    // A tensor that the branch wrote to is not the same in both.
    if (results[i].ok()) {
      for (TorchValue& value : *results[i]) {
        if (auto* cell = std::get_if<CellPtr>(&value);
            cell != nullptr && !b.IsOuter((*cell)->handle))
          value = NewCell((*cell)->handle);
      }
    }
    b.Leave();
    for (const Written& written : TakeWritten(mark)) {
      const auto known =
          cells.try_emplace(written.cell, written.cell->handle, written.cell->handle).first;
      (i == 0 ? known->second.first : known->second.second) = written.before;
    }
  }
  // A branch that always raises is one that no run takes.
  for (size_t i = 0; i < 2; ++i) {
    if (absl::IsAborted(results[i].status()) && !absl::IsAborted(results[1 - i].status()))
      return (*branches[1 - i])();
  }
  QUENCH_RETURN_IF_ERROR(results[0].status());
  QUENCH_RETURN_IF_ERROR(results[1].status());
  std::vector<std::pair<TorchValue, TorchValue>> leaves;
  for (size_t i = 0; i < results[0]->size(); ++i)
    QUENCH_RETURN_IF_ERROR(Annotate(Merge((*results[0])[i], (*results[1])[i], leaves), name));
  for (auto& [cell, handles] : cells)
    leaves.emplace_back(NewCell(handles.first), NewCell(handles.second));
  std::vector<std::pair<Handle, Handle>> outputs;
  for (const auto& leaf : leaves) {
    b.Enter(bodies[0]);
    QUENCH_ASSIGN_OR_RETURN(const Handle first, HandleOf(leaf.first));
    b.AddBodyOutput(first);
    b.Leave();
    b.Enter(bodies[1]);
    QUENCH_ASSIGN_OR_RETURN(const Handle second, HandleOf(leaf.second));
    b.AddBodyOutput(second);
    b.Leave();
    outputs.emplace_back(first, second);
  }
  const std::vector<Handle> handles =
      outputs.empty() ? std::vector<Handle>{} : b.AddIf(name, flag, bodies[0], bodies[1], outputs);
  std::vector<TorchValue> merged;
  for (size_t i = 0; i < handles.size(); ++i)
    merged.push_back(LeafOf(leaves[i].first, leaves[i].second, handles[i], NewCell(handles[i])));
  size_t next = 0;
  std::vector<TorchValue> all;
  for (size_t i = 0; i < results[0]->size(); ++i) {
    const TorchValue &first = (*results[0])[i], &second = (*results[1])[i];
    if (IsUninitialized(first) || IsUninitialized(second)) {
      all.push_back(IsUninitialized(first) ? second : first);
    } else {
      all.push_back(AreSame(first, second) ? first : Rebuild(first, merged, next));
    }
  }
  for (auto& [cell, pair] : cells) {
    QUENCH_ASSIGN_OR_RETURN(const Handle handle, HandleOf(merged[next++]));
    QUENCH_RETURN_IF_ERROR(Assign(cell, handle, name));
  }
  return all;
}

// The tensors and numbers in which two results differ.
absl::Status TorchProgram::Merge(const TorchValue& first, const TorchValue& second,
                                 std::vector<std::pair<TorchValue, TorchValue>>& leaves) const {
  if (AreSame(first, second) || IsUninitialized(first) || IsUninitialized(second))
    return absl::OkStatus();
  if (!HaveOneShape(first, second))
    return Unsupported(
        "the branches of a condition that only a run knows give values of different "
        "kinds");
  std::vector<TorchValue> a, c;
  Flatten(first, a);
  Flatten(second, c);
  for (size_t i = 0; i < a.size(); ++i) leaves.emplace_back(a[i], c[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TorchValue>> TorchProgram::Loop(const std::string& name,
                                                           const TorchValue& count,
                                                           const TorchValue& condition,
                                                           const std::vector<TorchValue>& initial,
                                                           const Iteration& iteration) {
  Handle trips = -1, flag = -1;
  if (!IsNone(count)) {
    QUENCH_ASSIGN_OR_RETURN(trips, HandleOf(count));
  }
  if (!IsNone(condition)) {
    QUENCH_ASSIGN_OR_RETURN(flag, HandleOf(condition));
  }
  std::vector<TorchValue> leaves;
  for (const TorchValue& value : initial) Flatten(value, leaves);
  std::vector<CellPtr> cells;  // that iterations write to
  std::vector<bool> same_sizes;
  const size_t mark = written_.size();
  // The first time tells what is written to, the second whose sizes change.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Handle> starts;
    for (const TorchValue& leaf : leaves) {
      QUENCH_ASSIGN_OR_RETURN(const Handle start, HandleOf(leaf));
      starts.push_back(start);
    }
    for (const CellPtr& cell : cells) {
      QUENCH_ASSIGN_OR_RETURN(const Handle start, Read(cell));
      starts.push_back(start);
    }
    same_sizes.resize(starts.size(), true);
    const std::shared_ptr<GraphBuilder::Body> body = b.EnterNew();
    const Handle zero =
        b.AddConstant("index", Tensor::Of(DataType::kI64, {}, std::vector<int64_t>{0}));
    const Handle yes =
        b.AddConstant("flag", Tensor::Of(DataType::kBool, {}, std::vector<uint8_t>{1}));
    const Handle index = b.AddBodyInput(body, name + "/index", zero, true);
    b.AddBodyInput(body, name + "/condition", yes, true);
    std::vector<TorchValue> carried;
    std::vector<Handle> inputs;
    for (size_t i = 0; i < starts.size(); ++i) {
      inputs.push_back(b.AddBodyInput(body, name + "/carried", starts[i], same_sizes[i]));
      if (i < leaves.size()) {
        carried.push_back(LeafOf(leaves[i], leaves[i], inputs[i], NewCell(inputs[i])));
      } else {
        QUENCH_RETURN_IF_ERROR(Assign(cells[i - leaves.size()], inputs[i], name));
      }
    }
    size_t next = 0;
    std::vector<TorchValue> given;
    for (const TorchValue& value : initial) given.push_back(Rebuild(value, carried, next));
    absl::StatusOr<std::vector<TorchValue>> results =
        iteration(RuntimeNumber{index, RuntimeNumber::Kind::kInt}, given);
    QUENCH_RETURN_IF_ERROR(results.status());
    std::vector<Handle> ends;
    for (size_t i = 0; i < initial.size(); ++i) {
      if (!HaveOneShape(initial[i], (*results)[i + 1]))
        return Unsupported("`{}`: a loop changes a value that is neither a tensor nor a number",
                           name);
      std::vector<TorchValue> now;
      Flatten((*results)[i + 1], now);
      for (const TorchValue& leaf : now) {
        QUENCH_ASSIGN_OR_RETURN(const Handle end, HandleOf(leaf));
        ends.push_back(end);
      }
    }
    for (const CellPtr& cell : cells) {
      QUENCH_ASSIGN_OR_RETURN(const Handle end, Read(cell));
      ends.push_back(end);
    }
    QUENCH_ASSIGN_OR_RETURN(const Handle again, HandleOf((*results)[0]));
    b.AddBodyOutput(again);
    for (const Handle end : ends) b.AddBodyOutput(end);
    b.Leave();
    bool settled = true;
    for (const Written& written : TakeWritten(mark)) {
      if (std::find(cells.begin(), cells.end(), written.cell) != cells.end()) continue;
      cells.push_back(written.cell);
      settled = false;
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      const bool same = b.TypeOf(inputs[i]) == b.TypeOf(ends[i]);
      if (same || !same_sizes[i]) continue;
      same_sizes[i] = false;
      settled = false;
    }
    if (!settled && round + 1 < kRounds) continue;
    const std::vector<Handle> handles = b.AddLoop(name, trips, flag, starts, body, ends);
    std::vector<TorchValue> finals;
    for (size_t i = 0; i < leaves.size(); ++i)
      finals.push_back(LeafOf(leaves[i], leaves[i], handles[i], NewCell(handles[i])));
    for (size_t i = 0; i < cells.size(); ++i)
      QUENCH_RETURN_IF_ERROR(Assign(cells[i], handles[leaves.size() + i], name));
    size_t at = 0;
    std::vector<TorchValue> all;
    for (const TorchValue& value : initial) all.push_back(Rebuild(value, finals, at));
    return all;
  }
  return Internal("`{}`: no round of a loop was the last", name);
}

}  // namespace quench::importer
