#include "services/analyser/sizes.h"

#include <algorithm>

#include "common/base/status.h"

namespace quench::analyser {
namespace {

constexpr int64_t kLargestCount = int64_t{1} << 62;

int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) || result > kLargestCount ? kLargestCount : result;
}

}  // namespace

absl::StatusOr<Sizes> Sizes::Of(const Graph& graph, const std::map<std::string, int64_t>& chosen) {
  const SymbolTable& symbols = *graph.symbols;
  StatusCollector problems;
  for (const auto& [name, size] : chosen) {
    if (!symbols.Find(name))
      problems.Add(InvalidArgument("--size: the model has no symbolic dim `{}`", name));
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  std::vector<int64_t> base(static_cast<size_t>(symbols.size()), -1);
  Sizes sizes;
  for (SymbolId id = 0; id < symbols.size(); ++id) {
    const Symbol& symbol = symbols.at(id);
    if (symbol.is_expression()) continue;
    const auto found = chosen.find(symbol.name);
    // A size that only a run can tell counts as 1: the rule is printed with the report.
    base[static_cast<size_t>(id)] =
        found != chosen.end() ? found->second : std::max<int64_t>(symbol.min, 1);
    sizes.used_[symbol.name] = base[static_cast<size_t>(id)];
  }
  sizes.symbols_ = graph.symbols;
  sizes.base_ = std::move(base);
  QUENCH_RETURN_IF_ERROR(sizes.Evaluate());
  return sizes;
}

absl::StatusOr<int64_t> Sizes::Of(Dim dim) {
  if (dim.is_static()) return dim.value();
  if (static_cast<size_t>(dim.symbol()) >= slots_.size()) QUENCH_RETURN_IF_ERROR(Evaluate());
  return SymbolTable::ValueOf(dim, slots_);
}

int64_t Sizes::Elements(const Type& type) const {
  if (type.kind != ValueKind::kTensor || !type.ranked) return 0;
  int64_t count = 1;
  for (const Dim dim : type.dims) {
    count = SaturatingMul(count, std::max<int64_t>(SymbolTable::ValueOf(dim, slots_), 0));
  }
  return count;
}

int64_t Sizes::Bytes(const Type& type) const {
  const int64_t elements = Elements(type);
  return elements > kLargestCount / 16 ? kLargestCount : DataTypeBytes(type.dtype, elements);
}

absl::Status Sizes::Evaluate() {
  base_.resize(static_cast<size_t>(symbols_->size()), -1);
  QUENCH_ASSIGN_OR_RETURN(slots_, symbols_->Evaluate(base_));
  return absl::OkStatus();
}

}  // namespace quench::analyser
