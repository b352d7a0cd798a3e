// Products of bytes whose right side is computed while running: it is packed a panel at a time, as
// constants are at compile time, with what sums start from.
#pragma once

#include <cstdint>
#include <functional>

#include "services/codegen/kernels/byte_root.h"
#include "services/codegen/kernels/vector_builder.h"

namespace quench::codegen {

// sum of (x - zx) (w - zw) over k
//   = sum of x' w'  -  zx' (sum of w' - k zw')  -  zw' (sum of x'),
// where ' means shifted as the form of multiplication wants it, the second term belongs to a column
// and the third to a row. The form kWords takes bytes as pairs of i16: of every four along k the
// even two, and, after all of those, the odd two; rows of x are widened so too.
class BytePanel {
 public:
  // `root.w` is there; `depth` is k, at least 1. Zero points of this run are i32, constant ones
  // invalid.
  BytePanel(VectorBuilder& b, const ByteRoot& root, int lanes, Int depth, Vec x_zero, Vec w_zero);

  // Words of four bytes that k numbers are multiplied in.
  static Dim Words(SymbolTable& symbols, BytesForm form, Dim depth);
  // Bytes of a panel of `vectors` vectors, including the starts of its sums and `rows` widened
  // rows.
  static Dim Bytes(SymbolTable& symbols, BytesForm form, Dim depth, int64_t vectors, int64_t lanes,
                   int64_t rows);

  // From rows of bytes, `stride` apart, to `to`: [words][vectors][lanes], rows beyond k are 0.
  // `load(row, v)` gives the `lanes` bytes of vector v of the row at an address.
  void Pack(Ptr from, Int stride, int vectors, Ptr to,
            const std::function<Vec(Ptr row, int v)>& load);
  // Start values of the sums of the packed panel's columns.
  Ptr Starts(Ptr panel, int vectors) const;

  bool widens() const { return root_.form == BytesForm::kWords; }
  // Bytes from one widened row to the next.
  Int pitch() const;
  // Behind the panel: place for widened rows.
  Ptr WidenedRows(Ptr panel, int vectors) const;
  void WidenRow(Ptr from, Ptr to);

  // Whether the rows have a term of their own, and what it is for a row of x, which is widened
  // where rows are: i32, all lanes alike.
  bool HasRowTerms() const;
  Vec RowTerm(Ptr row);

 private:
  Vec ShiftedZero(const ByteSide& side, Vec of_run) const;
  Vec Ones() const;

  VectorBuilder& b_;
  const ByteRoot& root_;
  int lanes_;
  Int fours_, whole_, rest_;  // of k: words of four that hold it, that it fills, bytes behind those
  Int words_;                 // as Words
  Vec x_zero_, w_zero_;
};

// Bytes of a row that fill no word, as one: those beyond are 0. `count` is 1 to 3.
Vec LoadPartOfWord(VectorBuilder& b, Ptr address, int count);
// Calls body(rest) where `rest` is 1 to 3, known or not.
void ForRest(VectorBuilder& b, Int rest, const std::function<void(int rest)>& body);

}  // namespace quench::codegen
