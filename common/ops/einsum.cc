#include <algorithm>
#include <map>

#include "common/ops/helpers.h"

namespace quench::ops {
namespace {

// Labels are letters; the dims of an ellipsis have labels of their own, aligned from the right.
constexpr int kEllipsis = 256;

struct EinsumPlan {
  std::vector<std::vector<int>> operands;  // label of every dim
  std::vector<int> output;
  std::vector<int> reduced;  // labels that are summed over, in order of appearance
  std::map<int, Dim> sizes;
};

// Letters of one term; "..." becomes `ellipsis` labels.
absl::StatusOr<std::vector<int>> Term(const OpContext& c, std::string_view text, int ellipsis) {
  std::vector<int> labels;
  bool dots = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "..." && !dots) {
      for (int k = ellipsis; k > 0; --k) labels.push_back(kEllipsis + k);
      dots = true;
      i += 2;
    } else if ((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z')) {
      labels.push_back(text[i]);
    } else {
      return c.Error(
          fmt::format("equation has `{}`, a term is letters and at most one `...`", text));
    }
  }
  return labels;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char character : text) {
    if (character == ',') {
      parts.emplace_back();
    } else {
      parts.back() += character;
    }
  }
  return parts;
}

absl::StatusOr<Dim> MergeLabel(const OpContext& c, Dim a, Dim b) {
  if (a == b || b.is(1)) return a;
  if (a.is(1) || !a.is_static()) return b;
  if (!b.is_static()) return a;
  return c.Error(fmt::format("a label of the equation has sizes {} and {}", a.value(), b.value()));
}

// Without an arrow: the ellipsis, then the labels that occur once, in alphabetical order.
std::vector<int> ImplicitOutput(const EinsumPlan& plan, int ellipsis) {
  std::map<int, int> counts;
  for (const auto& labels : plan.operands) {
    for (const int label : labels) ++counts[label];
  }
  std::vector<int> output;
  for (int k = ellipsis; k > 0; --k) output.push_back(kEllipsis + k);
  for (const auto& [label, count] : counts) {
    if (label < kEllipsis && count == 1) output.push_back(label);
  }
  return output;
}

absl::Status ReadOperands(const OpContext& c, const std::vector<std::string>& terms,
                          EinsumPlan& plan, int& widest) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    const std::string& text = terms[static_cast<size_t>(i)];
    const int rank = c.input(i).rank();
    int ellipsis = 0;
    if (text.find("...") != std::string::npos) {
      ellipsis = std::max(rank - (static_cast<int>(text.size()) - 3), 0);
    }
    widest = std::max(widest, ellipsis);
    QUENCH_ASSIGN_OR_RETURN(std::vector<int> labels, Term(c, text, ellipsis));
    if (static_cast<int>(labels.size()) != rank) {
      return c.Error(fmt::format("term `{}` does not fit input {} of rank {}", text, i, rank));
    }
    for (size_t d = 0; d < labels.size(); ++d) {
      const Dim dim = c.input(i).dims[d];
      const auto [known, fresh] = plan.sizes.emplace(labels[d], dim);
      if (fresh) continue;
      QUENCH_ASSIGN_OR_RETURN(known->second, MergeLabel(c, known->second, dim));
    }
    plan.operands.push_back(std::move(labels));
  }
  return absl::OkStatus();
}

absl::StatusOr<EinsumPlan> PlanEinsum(const OpContext& c) {
  std::string equation = c.node().String("equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  const std::vector<std::string> terms = Split(equation.substr(0, arrow));
  if (static_cast<int>(terms.size()) != c.num_inputs()) {
    return c.Error(
        fmt::format("equation has {} terms for {} inputs", terms.size(), c.num_inputs()));
  }
  EinsumPlan plan;
  int widest = 0;
  QUENCH_RETURN_IF_ERROR(ReadOperands(c, terms, plan, widest));
  if (arrow == std::string::npos) {
    plan.output = ImplicitOutput(plan, widest);
  } else {
    QUENCH_ASSIGN_OR_RETURN(plan.output, Term(c, equation.substr(arrow + 2), widest));
  }
  for (size_t i = 0; i < plan.output.size(); ++i) {
    const int label = plan.output[i];
    const auto twice =
        std::find(plan.output.begin(), plan.output.begin() + static_cast<ptrdiff_t>(i), label);
    if (!plan.sizes.contains(label) || twice != plan.output.begin() + static_cast<ptrdiff_t>(i)) {
      return c.Error("a label of the output is unknown or repeated");
    }
  }
  for (const auto& labels : plan.operands) {
    for (const int label : labels) {
      auto in = [label](const std::vector<int>& list) {
        return std::find(list.begin(), list.end(), label) != list.end();
      };
      if (!in(plan.output) && !in(plan.reduced)) plan.reduced.push_back(label);
    }
  }
  return plan;
}

absl::Status InferEinsum(InferContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has_input(i)) return c.Error(fmt::format("input {} is omitted", i));
  }
  QUENCH_RETURN_IF_ERROR(RequireType(c, 0, kNumericTypes));
  QUENCH_RETURN_IF_ERROR(RequireSameType(c));
  QUENCH_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(c));
  std::vector<Dim> dims;
  for (const int label : plan.output) dims.push_back(plan.sizes.at(label));
  c.SetOutput(0, c.input(0).dtype, std::move(dims));
  return absl::OkStatus();
}

// The size of every label, once; a run checks sizes that are only known then.
void CheckSizes(LowerContext& c, const EinsumPlan& plan) {
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    for (size_t d = 0; d < plan.operands[i].size(); ++d) {
      const Dim own = c.input(static_cast<int>(i)).dims[d];
      const Dim size = plan.sizes.at(plan.operands[i][d]);
      if (own == size || own.is(1)) continue;
      c.b().Check(
          c.Extent(own) == c.Extent(size),
          fmt::format("{}: dim {} of input {} does not fit the equation", c.node().name, d, i));
    }
  }
}

absl::Status LowerEinsum(LowerContext& c) {
  loops::Builder& b = c.b();
  QUENCH_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(c));
  CheckSizes(c, plan);
  const DataType type = loops::ComputeType(c.output(0).dtype);
  std::vector<E> extents;
  for (const int label : plan.reduced) extents.push_back(c.Extent(plan.sizes.at(label)));
  b.ParallelForAll(c.Extents(c.output(0).dims), [&](std::span<const E> index) {
    auto term = [&](std::span<const E> reduced) {
      std::map<int, E> at;
      for (size_t i = 0; i < index.size(); ++i) at[plan.output[i]] = index[i];
      for (size_t i = 0; i < reduced.size(); ++i) at[plan.reduced[i]] = reduced[i];
      std::vector<E> factors;
      for (int i = 0; i < c.num_inputs(); ++i) {
        std::vector<E> operand;
        for (size_t d = 0; d < plan.operands[static_cast<size_t>(i)].size(); ++d) {
          const int label = plan.operands[static_cast<size_t>(i)][d];
          const bool stretched = c.input(i).dims[d].is(1) && !plan.sizes.at(label).is(1);
          operand.push_back(stretched ? b.I(0) : at.at(label));
        }
        factors.push_back(c.in(i).At(operand));
      }
      return Combined(factors, [](E a, E b) { return a * b; });
    };
    const E value =
        plan.reduced.empty() ? term({}) : b.ReduceAll(BinaryOp::kAdd, b.F(0, type), extents, term);
    b.Store(c.out(0), index, value);
  });
  return absl::OkStatus();
}

// One product per combination of labels and operand after the first.
Dim EinsumMacs(const OpContext& c) {
  const absl::StatusOr<EinsumPlan> plan = PlanEinsum(c);
  if (!plan.ok()) return 0;
  Dim count = std::max(c.num_inputs() - 1, 0);
  for (const auto& [label, size] : plan->sizes) count = c.symbols().Mul(count, size);
  return count;
}

}  // namespace

const OpDef& EinsumOp() {
  static const OpDef op = {
      .name = "Einsum",
      .summary = "sums of products over labelled dims (numpy.einsum)",
      .min_inputs = 1,
      .max_inputs = -1,
      .attributes = {{"equation", AttributeSpec::kString, true}},
      .infer = InferEinsum,
      .macs = EinsumMacs,
      .lower = LowerEinsum,
  };
  return op;
}

}  // namespace quench::ops
