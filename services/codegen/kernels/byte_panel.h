// Products of bytes whose right side is computed at run time: it is packed a panel at a time, as
// constants are at compile time, together with the start values of sums.
#pragma once

#include <cstdint>
#include <functional>

#include "services/codegen/forms/byte_words.h"
#include "services/codegen/kernels/byte_root.h"

namespace quench::codegen {

// sum of (x - zx) (w - zw) over k
//   = sum of x' w'  -  zx' (sum of w' - k zw')  -  zw' (sum of x'),
// where ' means shifted as the form of multiplication needs it; the second term belongs to a column
// and the third to a row. The form kWords takes bytes as pairs of i16: of every four along k first
// the two even ones, and after all of those the two odd ones; rows of x are widened in the same
// way.
class BytePanel {
 public:
  // `root.w` must be set, the form is a ByteForm; `depth` is k, at least 1. Zero points known only at run time are i32,
  // constant ones invalid.
  BytePanel(VectorBuilder& b, const ByteRoot& root, const AnyForm& form, int lanes, Int depth,
            Vec x_zero, Vec w_zero);

  // Number of words of the reduction over k: a rest beside them is not counted.
  static Dim WholeWords(SymbolTable& symbols, const AnyForm& form, Dim depth);
  // Bytes of a panel of `vectors` vectors, including the starts of its sums and `rows` widened
  // rows.
  static Dim Bytes(SymbolTable& symbols, const AnyForm& form, Dim depth, int64_t vectors,
                   int64_t lanes, int64_t rows);

  // Packs rows of bytes, `stride` apart, into `to`: [words][vectors][lanes], rows beyond k are 0.
  // `load(row, v)` gives the `lanes` bytes of vector v of the row at an address.
  void Pack(Ptr from, Int stride, int vectors, Ptr to,
            const std::function<Vec(Ptr row, int v)>& load);
  // Start values of the sums of the packed panel's columns.
  Ptr Starts(Ptr panel, int vectors) const;

  bool widens() const { return form_ == BytesForm::kWords; }
  // Bytes from one widened row to the next.
  Int pitch() const;
  // The place for widened rows, behind the panel.
  Ptr WidenedRows(Ptr panel, int vectors) const;
  void WidenRow(Ptr from, Ptr to);

  // Whether the rows have a term of their own, and that term for a row of x (which is widened if
  // rows are): i32, the same in all lanes.
  bool HasRowTerms() const;
  Vec RowTerm(Ptr row);

 private:
  Vec ShiftedZero(const ByteSide& side, Vec of_run) const;
  Vec Ones() const;

  VectorBuilder& b_;
  const ByteRoot& root_;
  const BytesForm form_;
  int lanes_;
  Int fours_, whole_, rest_;  // words of four that hold k, words that it fills, and bytes left over
  Int words_;                 // that k takes, with the rest
  Vec x_zero_, w_zero_;
};

}  // namespace quench::codegen
