#include "services/codegen/kernels/byte_panel.h"

#include <vector>

namespace quench::codegen {
namespace {

constexpr int64_t kFour = 4;  // bytes of a word

int64_t Fours(int64_t depth) { return (depth + kFour - 1) / kFour; }

Vec Scaled(VectorBuilder& b, Vec value, double factor) {
  return b.Apply(VecOp::kMul, value, b.Constant(DataType::kI32, factor, value.lanes));
}

// Byte r of words, from numbers of 0 to 255.
Vec AtByte(VectorBuilder& b, Vec bytes, int r) {
  return r == 0 ? bytes : Scaled(b, bytes, static_cast<double>(int64_t{1} << (8 * r)));
}

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

}  // namespace

Vec LoadPartOfWord(VectorBuilder& b, Ptr address, int count) {
  Vec word;
  for (int r = 0; r < count; ++r) {
    const Vec byte = AtByte(b, b.ToI32(b.Load(address + r, 1, DataType::kU8)), r);
    word = r == 0 ? byte : b.Apply(VecOp::kAdd, word, byte);
  }
  return word;
}

BytePanel::BytePanel(VectorBuilder& b, const ByteRoot& root, int lanes, int64_t depth, Vec x_zero,
                     Vec w_zero)
    : b_(b),
      root_(root),
      lanes_(lanes),
      depth_(depth),
      x_zero_(ShiftedZero(root.x, x_zero)),
      w_zero_(ShiftedZero(*root.w, w_zero)) {}

Vec BytePanel::ShiftedZero(const ByteSide& side, Vec of_run) const {
  const auto shift = static_cast<double>(side.zero + side.shift());
  const Vec known = b_.Constant(DataType::kI32, shift, 1);
  return of_run.valid() ? b_.Apply(VecOp::kAdd, of_run, known) : known;
}

// What sums numbers up when multiplied by them.
Vec BytePanel::Ones() const {
  return b_.Constant(DataType::kI32, widens() ? 0x00010001 : 0x01010101, lanes_);
}

int64_t BytePanel::Words(BytesForm form, int64_t depth) {
  return Fours(depth) * (form == BytesForm::kWords ? 2 : 1);
}

int64_t BytePanel::pitch() const {
  return (Words(root_.form, depth_) + lanes_ - 1) / lanes_ * lanes_ * kFour;
}

int64_t BytePanel::Bytes(BytesForm form, int64_t depth, int64_t vectors, int64_t lanes,
                         int64_t rows) {
  const int64_t words = Words(form, depth);
  const int64_t row = form == BytesForm::kWords ? (words + lanes - 1) / lanes : 0;
  return ((words + 1) * vectors + row * rows) * lanes * kFour;
}

Ptr BytePanel::Starts(Ptr panel, int vectors) const {
  return panel + Words(root_.form, depth_) * vectors * lanes_ * kFour;
}

Ptr BytePanel::WidenedRows(Ptr panel, int vectors) const {
  return Starts(panel, vectors) + kFour * vectors * lanes_;
}

void BytePanel::Pack(Ptr from, Int stride, int vectors, Ptr to,
                     const std::function<Vec(Ptr row, int v)>& load) {
  const int64_t vector = kFour * lanes_;
  const BytesOperand ones = b_.PrepareBytes(root_.form, Ones(), false);
  std::vector<VecVar> sums;
  for (int v = 0; v < vectors; ++v)
    sums.push_back(b_.Variable(b_.Constant(DataType::kI32, 0, lanes_)));
  const auto keep = [&](Vec words, Ptr place, int v) {
    b_.Store(place + vector * v, words);
    const VecVar& sum = sums[static_cast<size_t>(v)];
    sum.Set(b_.AddProducts(root_.form, sum.Get(), ones, words));
  };
  const int64_t odd = Fours(depth_) * vector * vectors;
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
    }
  };
  const int64_t whole = depth_ / kFour;
  b_.For(b_.I(0), b_.I(whole), 1,
         [&](Int i) { pack(from + stride * (i * kFour), to + i * (vector * vectors), kFour); });
  if (const int rest = static_cast<int>(depth_ % kFour); rest > 0)
    pack(from + stride * (whole * kFour), to + whole * vector * vectors, rest);
  const Ptr starts = Starts(to, vectors);
  const Vec factor = b_.Splat(Scaled(b_, x_zero_, -1), lanes_);
  const Vec less = b_.Splat(Scaled(b_, w_zero_, -static_cast<double>(depth_)), lanes_);
  for (int v = 0; v < vectors; ++v) {
    const Vec sum = b_.Apply(VecOp::kAdd, sums[static_cast<size_t>(v)].Get(), less);
    b_.Store(starts + vector * v, b_.Apply(VecOp::kMul, sum, factor));
  }
}

void BytePanel::WidenRow(Ptr from, Ptr to) {
  const int64_t words = Fours(depth_), whole = depth_ / kFour, vectors = whole / lanes_;
  const int64_t vector = kFour * lanes_;
  // What follows the last word is read by sums of the row.
  b_.Store(to + (pitch() - vector), b_.Constant(DataType::kI32, 0, lanes_));
  const auto widen = [&](Vec read, Int at, int64_t bytes, bool one) {
    Vec x = b_.PrepareBytes(BytesForm::kSigned, read, root_.x.flip).value;
    x = KeepBytes(b_, x, bytes);
    for (const bool odd : {false, true}) {
      const Ptr place = to + at * kFour + (odd ? words * kFour : 0);
      const Vec half = odd ? Odd(b_, x) : Even(b_, x);
      one ? b_.StoreFirst(place, half, b_.I(1)) : b_.Store(place, half);
    }
  };
  b_.For(b_.I(0), b_.I(vectors), 1,
         [&](Int i) { widen(b_.LoadWords(from + i * vector, lanes_), i * lanes_, kFour, false); });
  b_.For(b_.I(vectors * lanes_), b_.I(whole), 1, [&](Int i) {
    widen(b_.Splat(b_.LoadWords(from + i * kFour, 1), lanes_), i, kFour, true);
  });
  if (const int rest = static_cast<int>(depth_ % kFour); rest > 0) {
    const Vec word = LoadPartOfWord(b_, from + whole * kFour, rest);
    widen(b_.Splat(word, lanes_), b_.I(whole), rest, true);
  }
}

bool BytePanel::HasRowTerms() const {
  return root_.w->zero_input >= 0 || root_.w->zero + root_.w->shift() != 0;
}

Vec BytePanel::RowTerm(Ptr row) {
  const Vec ones = Ones();
  const VecVar sum = b_.Variable(b_.Constant(DataType::kI32, 0, lanes_));
  const auto add = [&](Vec x) {
    sum.Set(b_.AddProducts(root_.form, sum.Get(), b_.PrepareBytes(root_.form, x, false), ones));
  };
  const auto shifted = [&](Vec x) {
    return widens() ? x : b_.PrepareBytes(BytesForm::kSigned, x, root_.x.flip).value;
  };
  const int64_t vector = kFour * lanes_;
  const int64_t whole = widens() ? pitch() / kFour : depth_ / kFour;
  b_.For(b_.I(0), b_.I(whole / lanes_), 1,
         [&](Int i) { add(shifted(b_.LoadWords(row + i * vector, lanes_))); });
  b_.For(b_.I(whole / lanes_ * lanes_), b_.I(whole), 1, [&](Int i) {
    const Vec word = shifted(b_.Splat(b_.LoadWords(row + i * kFour, 1), lanes_));
    add(b_.KeepFirst(word, b_.I(1)));
  });
  if (const int rest = static_cast<int>(depth_ % kFour); rest > 0 && !widens()) {
    const Vec word = LoadPartOfWord(b_, row + whole * kFour, rest);
    add(b_.KeepFirst(KeepBytes(b_, shifted(b_.Splat(word, lanes_)), rest), b_.I(1)));
  }
  return b_.Splat(b_.Apply(VecOp::kMul, b_.Sum(sum.Get()), Scaled(b_, w_zero_, -1)), lanes_);
}

}  // namespace quench::codegen
