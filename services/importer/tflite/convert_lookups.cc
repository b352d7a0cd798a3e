// Rows of tables by their numbers, and sums of rows that have one number.
#include <limits>

#include "common/base/status.h"
#include "services/importer/tflite/converters.h"

namespace quench::importer::tflite_ops {

absl::Status EmbeddingLookup(Converter& c) {
  TfliteNode n(c);
  const bool raw = n.HasQuantizedOutput() || !n.IsQuantized(1);
  const ValueId rows =
      n.Emit("Gather", {raw ? n.Raw(1) : n.Real(1), n.Raw(0)}, {{"axis", int64_t{0}}});
  return raw ? n.FinishRaw(rows) : n.Finish(rows);
}

// Rows of a table, weighed and added up in bags: inputs ids [n], places [n, rank] of which all but
// the last say the bag, the shape of the bags with the size of the largest, weights [n], the table.
// A bag without rows is 0. As lite/kernels/embedding_lookup_sparse.cc of TensorFlow.
absl::Status EmbeddingLookupSparse(Converter& c) {
  TfliteNode n(c);
  QUENCH_RETURN_IF_ERROR(c.RequireRank(4));
  const int64_t combiner = n.Int("combiner");
  if (combiner < 0 || combiner > tflite::CombinerType_MAX)
    return c.Error(fmt::format("combiner is {}", combiner));
  const auto along = [&](ValueId list, int64_t from, int64_t to, int64_t axis) {
    return n.Emit("Slice", {list, c.Ints({from}), c.Ints({to}), c.Ints({axis})});
  };
  // A size of 1 for each axis of a row.
  std::vector<int64_t> of_row(static_cast<size_t>(std::max(c.Rank(c.in(4)) - 1, 0)));
  for (size_t i = 0; i < of_row.size(); ++i) of_row[i] = -1 - static_cast<int64_t>(i);
  const auto for_rows = [&](ValueId list) {
    return of_row.empty() ? list : n.Emit("Unsqueeze", {list, c.Ints(of_row)});
  };
  const ValueId bags = along(n.Sizes(2), 0, -1, 0);
  const ValueId places = along(n.Sizes(1), 0, -1, 1);
  const ValueId weights = n.Real(3);
  const auto added_up = [&](ValueId rows, ValueId shape) {
    const ValueId start = n.Emit("Expand", {c.Scalar(c.type(rows).dtype, 0), shape});
    return n.Emit("ScatterND", {start, places, rows}, {{"reduction", std::string("add")}});
  };
  const ValueId table = n.Real(4);
  const ValueId row = along(n.Emit("Shape", {table}), 1, kEnd, 0);
  const ValueId rows = n.Emit("Gather", {table, n.Raw(0)}, {{"axis", int64_t{0}}});
  const ValueId sums = added_up(n.Emit("Mul", {rows, for_rows(weights)}),
                                n.Emit("Concat", {bags, row}, {{"axis", int64_t{0}}}));
  if (combiner == tflite::CombinerType_SUM) return n.Finish(sums);
  const bool mean = combiner == tflite::CombinerType_MEAN;
  ValueId total = added_up(mean ? weights : n.Emit("Mul", {weights, weights}), bags);
  if (!mean) total = n.Emit("Sqrt", {total});
  const DataType dtype = c.type(total).dtype;
  const ValueId empty = n.Emit("Equal", {total, c.Scalar(dtype, 0)});
  const ValueId divisor = n.Emit("Where", {empty, c.Scalar(dtype, 1), total});
  return n.Finish(n.Emit("Div", {sums, for_rows(divisor)}));
}

absl::Status UnsortedSegment(Converter& c) {
  TfliteNode n(c);
  QUENCH_ASSIGN_OR_RETURN(const int64_t count, n.RequireInt(2, "the number of segments"));
  if (count < 0 || count > kMaxSize) return c.Error(fmt::format("has {} segments", count));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(0));
  QUENCH_RETURN_IF_ERROR(c.RequireRank(1));
  const DataType dtype = c.type(c.in(0)).dtype;
  const std::string& op = c.node().op;
  const bool minimum = op == "UNSORTED_SEGMENT_MIN", maximum = op == "UNSORTED_SEGMENT_MAX";
  const double first = op == "UNSORTED_SEGMENT_PROD" ? 1
                       : minimum                     ? std::numeric_limits<float>::max()
                       : maximum                     ? std::numeric_limits<float>::lowest()
                                                     : 0;
  const int ids = c.Rank(c.in(1));
  const ValueId inner =
      n.Emit("Slice", {n.Emit("Shape", {n.Raw(0)}), c.Ints({ids}), c.Ints({kEnd}), c.Ints({0})});
  const ValueId shape = n.Emit("Concat", {c.Ints({count + 1}), inner}, {{"axis", int64_t{0}}});
  const ValueId start = n.Emit("Expand", {c.Scalar(dtype, first), shape});
  // Rows that belong to no segment go into a row behind the last, which is dropped.
  const ValueId given = n.Cast(n.Raw(1), DataType::kI64);
  const ValueId none = n.Emit("Less", {given, c.Scalar(DataType::kI64, 0)});
  const ValueId segments =
      n.Emit("Where", {none, c.Scalar(DataType::kI64, static_cast<double>(count)), given});
  const ValueId places = n.Emit("Unsqueeze", {segments, c.Ints({-1})});
  const char* reduction = minimum ? "min" : maximum ? "max" : first == 1 ? "mul" : "add";
  const ValueId rows =
      n.Emit("ScatterND", {start, places, n.Raw(0)}, {{"reduction", std::string(reduction)}});
  return n.FinishRaw(n.Emit("Slice", {rows, c.Ints({0}), c.Ints({count}), c.Ints({0})}));
}

// Sums of rows that lie next to one another: the last number says how many there are.
absl::Status SegmentSum(Converter& c) {
  TfliteNode n(c);
  if (c.Rank(c.in(1)) != 1) return c.Error("its segments are not a list");
  const ValueId ids = n.Sizes(1);
  const auto part = [&](ValueId list, int64_t from) {
    return n.Emit("Slice", {list, c.Ints({from}), c.Ints({kEnd}), c.Ints({0})});
  };
  const ValueId count = n.Emit("Add", {part(ids, -1), c.Ints({1})});
  const ValueId shape =
      n.Emit("Concat", {count, part(n.Emit("Shape", {n.Raw(0)}), 1)}, {{"axis", int64_t{0}}});
  const ValueId start = n.Emit("Expand", {c.Scalar(c.type(c.in(0)).dtype, 0), shape});
  const ValueId places = n.Emit("Unsqueeze", {ids, c.Ints({-1})});
  return n.FinishRaw(
      n.Emit("ScatterND", {start, places, n.Raw(0)}, {{"reduction", std::string("add")}}));
}

}  // namespace quench::importer::tflite_ops
