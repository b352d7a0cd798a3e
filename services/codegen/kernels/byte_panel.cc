#include "services/codegen/kernels/byte_panel.h"

#include <vector>

namespace quench::codegen {
namespace {

constexpr int64_t kFour = 4;  // bytes of a word

Vec Masked(VectorBuilder& b, Vec words, int64_t mask) {
  return b.Apply(VecOp::kAnd, words,
                 b.Constant(DataType::kI32, static_cast<double>(mask), words.lanes));
}

// The first `count` bytes of words, the others 0.
Vec KeepBytes(VectorBuilder& b, Vec words, int64_t count) {
  return count == kFour ? words : Masked(b, words, (int64_t{1} << (8 * count)) - 1);
}

// Bytes of words as i16, from 0 to 255.
constexpr int64_t kEvenBytes = 0x00FF00FF;
Vec Even(VectorBuilder& b, Vec words) { return Masked(b, words, kEvenBytes); }
Vec Odd(VectorBuilder& b, Vec words) {
  const Vec eight = b.Constant(DataType::kI32, 8, words.lanes);
  return Masked(b, b.Apply(VecOp::kShiftRight, words, eight), kEvenBytes);
}

bool Widens(const AnyForm& form) { return form.As<ByteForm>()->products == BytesForm::kWords; }

// Number of words of four bytes in which k numbers are multiplied.
Dim AllWords(SymbolTable& symbols, const AnyForm& form, Dim depth) {
  return symbols.Mul(symbols.CeilDiv(depth, kFour), Widens(form) ? 2 : 1);
}

}  // namespace

BytePanel::BytePanel(VectorBuilder& b, const ByteRoot& root, const AnyForm& form, int lanes,
                     Int depth, Vec x_zero, Vec w_zero)
    : b_(b),
      root_(root),
      form_(form.As<ByteForm>()->products),
      lanes_(lanes),
      fours_((depth + (kFour - 1)) / kFour),
      whole_(depth / kFour),
      rest_(depth % kFour),
      words_(widens() ? fours_ * 2 : fours_),
      x_zero_(ShiftedZero(root.x, x_zero)),
      w_zero_(ShiftedZero(*root.w, w_zero)) {}

Vec BytePanel::ShiftedZero(const ByteSide& side, Vec of_run) const {
  const auto shift = static_cast<double>(side.zero + side.shift());
  const Vec known = b_.Constant(DataType::kI32, shift, 1);
  return of_run.valid() ? b_.Apply(VecOp::kAdd, of_run, known) : known;
}

// The factor that sums numbers up when multiplied by them.
Vec BytePanel::Ones() const {
  return b_.Constant(DataType::kI32, widens() ? 0x00010001 : 0x01010101, lanes_);
}

Dim BytePanel::WholeWords(SymbolTable& symbols, const AnyForm& form, Dim depth) {
  return Widens(form) ? AllWords(symbols, form, depth) : symbols.FloorDiv(depth, kFour);
}

Int BytePanel::pitch() const { return (words_ + (lanes_ - 1)) / lanes_ * (lanes_ * kFour); }

Dim BytePanel::Bytes(SymbolTable& symbols, const AnyForm& form, Dim depth, int64_t vectors,
                     int64_t lanes, int64_t rows) {
  const Dim words = AllWords(symbols, form, depth);
  const Dim panel = symbols.Mul(symbols.Add(words, 1), vectors);
  const Dim widened = Widens(form) ? symbols.Mul(symbols.CeilDiv(words, lanes), rows) : Dim(0);
  return symbols.Mul(symbols.Add(panel, widened), lanes * kFour);
}

Ptr BytePanel::Starts(Ptr panel, int vectors) const {
  return panel + words_ * (vectors * lanes_ * kFour);
}

Ptr BytePanel::WidenedRows(Ptr panel, int vectors) const {
  return Starts(panel, vectors) + kFour * vectors * lanes_;
}

void BytePanel::Pack(Ptr from, Int stride, int vectors, Ptr to,
                     const std::function<Vec(Ptr row, int v)>& load) {
  const int64_t vector = kFour * lanes_;
  const BytesOperand ones = b_.PrepareBytes(form_, Ones(), false);
  std::vector<VecVar> sums;
  for (int v = 0; v < vectors; ++v)
    sums.push_back(b_.Variable(b_.Constant(DataType::kI32, 0, lanes_)));
  const auto keep = [&](Vec words, Ptr place, int v) {
    b_.Store(place + vector * v, words);
    const VecVar& sum = sums[static_cast<size_t>(v)];
    sum.Set(b_.AddProducts(form_, sum.Get(), ones, words));
  };
  const Int odd = fours_ * (vector * vectors);
  const auto pack = [&](Ptr first, Ptr place, int rows) {
    for (int v = 0; v < vectors; ++v) {
      Vec words;
      for (int r = 0; r < rows; ++r) {
        const Vec bytes = AtByte(b_, b_.ToI32(load(first + stride * r, v)), r);
        words = r == 0 ? bytes : b_.Apply(VecOp::kAdd, words, bytes);
      }
      words = b_.PrepareBytes(BytesForm::kSigned, words, root_.w->flip).value;
      words = KeepBytes(b_, words, rows);
      keep(widens() ? Even(b_, words) : words, place, v);
      if (widens()) keep(Odd(b_, words), place + odd, v);
      if (!HasRowTerms()) continue;  // the zero point is 0
      const VecVar& sum = sums[static_cast<size_t>(v)];
      sum.Set(b_.Apply(VecOp::kAdd, sum.Get(), b_.Splat(Scaled(b_, w_zero_, -rows), lanes_)));
    }
  };
  b_.For(b_.I(0), whole_, 1,
         [&](Int i) { pack(from + stride * (i * kFour), to + i * (vector * vectors), kFour); });
  ForRest(b_, rest_, [&](int rest) {
    pack(from + stride * (whole_ * kFour), to + whole_ * (vector * vectors), rest);
  });
  const Ptr starts = Starts(to, vectors);
  const Vec factor = b_.Splat(Scaled(b_, x_zero_, -1), lanes_);
  for (int v = 0; v < vectors; ++v) {
    const Vec sum = sums[static_cast<size_t>(v)].Get();
    b_.Store(starts + vector * v, b_.Apply(VecOp::kMul, sum, factor));
  }
}

void BytePanel::WidenRow(Ptr from, Ptr to) {
  const Int vectors = whole_ / lanes_;
  const int64_t vector = kFour * lanes_;
  // The bytes after the last word are read by sums of the row.
  b_.Store(to + (pitch() - vector), b_.Constant(DataType::kI32, 0, lanes_));
  const auto widen = [&](Vec read, Int at, int64_t bytes, bool one) {
    Vec x = b_.PrepareBytes(BytesForm::kSigned, read, root_.x.flip).value;
    x = KeepBytes(b_, x, bytes);
    for (const bool odd : {false, true}) {
      const Ptr place = to + (odd ? at + fours_ : at) * kFour;
      const Vec half = odd ? Odd(b_, x) : Even(b_, x);
      one ? b_.StoreFirst(place, half, b_.I(1)) : b_.Store(place, half);
    }
  };
  b_.For(b_.I(0), vectors, 1,
         [&](Int i) { widen(b_.LoadWords(from + i * vector, lanes_), i * lanes_, kFour, false); });
  b_.For(vectors * lanes_, whole_, 1, [&](Int i) {
    widen(b_.Splat(b_.LoadWords(from + i * kFour, 1), lanes_), i, kFour, true);
  });
  ForRest(b_, rest_, [&](int rest) {
    const Vec word = LoadPartOfWord(b_, from + whole_ * kFour, rest);
    widen(b_.Splat(word, lanes_), whole_, rest, true);
  });
}

bool BytePanel::HasRowTerms() const {
  return root_.w->zero_input >= 0 || root_.w->zero + root_.w->shift() != 0;
}

Vec BytePanel::RowTerm(Ptr row) {
  const Vec ones = Ones();
  const VecVar sum = b_.Variable(b_.Constant(DataType::kI32, 0, lanes_));
  const auto add = [&](Vec x) {
    sum.Set(b_.AddProducts(form_, sum.Get(), b_.PrepareBytes(form_, x, false), ones));
  };
  const auto shifted = [&](Vec x) {
    return widens() ? x : b_.PrepareBytes(BytesForm::kSigned, x, root_.x.flip).value;
  };
  const int64_t vector = kFour * lanes_;
  const Int vectors = widens() ? pitch() / vector : whole_ / lanes_;
  b_.For(b_.I(0), vectors, 1, [&](Int i) { add(shifted(b_.LoadWords(row + i * vector, lanes_))); });
  if (!widens()) {
    b_.For(vectors * lanes_, whole_, 1, [&](Int i) {
      const Vec word = shifted(b_.Splat(b_.LoadWords(row + i * kFour, 1), lanes_));
      add(b_.KeepFirst(word, b_.I(1)));
    });
    ForRest(b_, rest_, [&](int rest) {
      const Vec word = LoadPartOfWord(b_, row + whole_ * kFour, rest);
      add(b_.KeepFirst(KeepBytes(b_, shifted(b_.Splat(word, lanes_)), rest), b_.I(1)));
    });
  }
  return b_.Splat(b_.Apply(VecOp::kMul, b_.Sum(sum.Get()), Scaled(b_, w_zero_, -1)), lanes_);
}

}  // namespace quench::codegen
