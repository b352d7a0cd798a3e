#include "services/codegen/forms/picked_pairs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace quench::codegen {
namespace {

constexpr int kWord = 4;  // bytes

// The weights of one byte of x, for all channels of a panel.
using Column = std::vector<int16_t>;

int16_t Positive(int16_t w) { return std::max<int16_t>(w, 0); }
int16_t Negative(int16_t w) { return std::min<int16_t>(w, 0); }

// Whether two columns cannot be a pair in some channel. (Counts, so that the loop is one of vectors.)
bool Conflicts(const Column& a, const Column& b) {
  int16_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto most = static_cast<int16_t>(Positive(a[i]) + Positive(b[i]));
    const auto least = static_cast<int16_t>(Negative(a[i]) + Negative(b[i]));
    const bool fits = most <= kPairMost && least >= -kPairMost && std::max(a[i], b[i]) < kPairMost;
    count = static_cast<int16_t>(count + (fits ? 0 : 1));
  }
  return count > 0;
}

int8_t Byte(int16_t w) { return static_cast<int8_t>(std::clamp<int16_t>(w, -128, 127)); }

// As much of a pair of weights as fits is taken from them.
std::pair<int8_t, int8_t> TakePair(int16_t& a, int16_t& b) {
  const int8_t second = Byte(b);
  const int low = -kPairMost - Negative(second), high = kPairMost - Positive(second);
  const auto first = Byte(static_cast<int16_t>(std::clamp<int>(a, low, high)));
  a = static_cast<int16_t>(a - first);
  b = static_cast<int16_t>(b - second);
  return {first, second};
}

bool IsZero(const Column& column) {
  return std::all_of(column.begin(), column.end(), [](int16_t w) { return w == 0; });
}

// Pairs up the vertices of a graph of up to 16: as few pairs that are not edges as a short search finds.
class Matcher {
 public:
  // edges[v]: a bit for each neighbour of v.
  Matcher(std::span<const uint32_t> edges) : edges_(edges), order_(edges.size()) {}

  // Vertices in the order of the pairs.
  std::vector<int8_t> Pairs() {
    const uint32_t all = (1U << edges_.size()) - 1;
    for (int unmatched = 0;; unmatched += 2) {
      left_ = kSteps;
      alone_ = 0;
      if (Match(all, unmatched, 0)) break;
    }
    // The vertices that are alone pair among themselves, at the end.
    size_t at = edges_.size() - static_cast<size_t>(std::popcount(alone_));
    for (uint32_t rest = alone_; rest != 0; rest &= rest - 1)
      order_[at++] = static_cast<int8_t>(std::countr_zero(rest));
    return order_;
  }

 private:
  static constexpr int kSteps = 1024;  // of a search; few groups take a hundred

  bool Match(uint32_t free, int unmatched, size_t at) {
    if (free == 0) return true;
    if (--left_ < 0 && std::popcount(free) > unmatched) return false;
    const int first = std::countr_zero(free);
    const uint32_t others = free & (free - 1);
    for (uint32_t rest = others & edges_[static_cast<size_t>(first)]; rest != 0; rest &= rest - 1) {
      const int second = std::countr_zero(rest);
      order_[at] = static_cast<int8_t>(first);
      order_[at + 1] = static_cast<int8_t>(second);
      if (Match(others & ~(1U << second), unmatched, at + 2)) return true;
    }
    if (unmatched == 0 || !Match(others, unmatched - 1, at)) return false;
    alone_ |= 1U << first;
    return true;
  }

  const std::span<const uint32_t> edges_;
  std::vector<int8_t> order_;
  uint32_t alone_ = 0;
  int left_ = 0;
};

class Packer {
 public:
  Packer(const PickedPanels& panels, std::span<const int16_t> weights)
      : p_(panels), weights_(weights) {}

  std::vector<std::byte> Pack() {
    out_.resize(static_cast<size_t>(p_.EntriesAt()));
    for (int64_t panel = 0; panel < p_.panels(); ++panel) {
      PutInt(p_.StartsAt() + 4 * panel, entries_);
      vectors_ = p_.split.Size(panel % p_.split.parts());
      PackPanel();
    }
    PutInt(p_.StartsAt() + 4 * p_.panels(), entries_);
    return std::move(out_);
  }

 private:
  int64_t channels() const { return vectors_ * p_.lanes; }

  void PackPanel() {
    for (int64_t row = 0; row < p_.rows; ++row) {
      for (int64_t c = 0; c < p_.run;) {
        const WordGroup group = GroupOf(c, p_.run, p_.most);
        PackGroup(row * p_.run + c, group.count);
        c += group.count;
      }
    }
    if (p_.rest > 0) PackRest();
    from_ += static_cast<size_t>((p_.whole_words() + (p_.rest > 0 ? 1 : 0)) * channels() * kWord);
  }

  void AddColumns(int64_t word, std::vector<Column>& columns) const {
    for (int64_t byte = 0; byte < kWord; ++byte) {
      const size_t first = from_ + static_cast<size_t>(word * channels() * kWord + byte);
      Column column(static_cast<size_t>(channels()));
      for (size_t c = 0; c < column.size(); ++c) column[c] = weights_[first + c * kWord];
      columns.push_back(std::move(column));
    }
  }

  void PackGroup(int64_t word, int64_t count) {
    std::vector<Column> columns;
    for (int64_t i = 0; i < count; ++i) AddColumns(word + i, columns);
    const std::vector<int8_t> order = BestOrder(columns);
    for (size_t i = 0; i < order.size(); i += kWord)
      PutWord(columns, std::span(order).subspan(i, kWord));
    const int64_t together = p_.EntryWords();
    for (int64_t i = 0; i < count; i += together) {
      const int64_t loaded = std::min(together, count - i);
      // The last word of a run may have none behind it: its entries begin earlier.
      const int64_t before = together - loaded;
      PackLeft(std::span(columns).subspan(static_cast<size_t>(i * kWord),
                                          static_cast<size_t>(loaded * kWord)),
               word + i - before, static_cast<int>(before) * kWord);
    }
  }

  static std::vector<int8_t> BestOrder(const std::vector<Column>& columns) {
    std::vector<uint32_t> edges(columns.size());
    for (size_t a = 0; a < columns.size(); ++a) {
      for (size_t b = a + 1; b < columns.size(); ++b) {
        if (Conflicts(columns[a], columns[b])) continue;
        edges[a] |= 1U << b;
        edges[b] |= 1U << a;
      }
    }
    return Matcher(edges).Pairs();
  }

  // Entries until nothing is left of the columns, whose first is byte `shift` of what an entry loads.
  void PackLeft(std::span<Column> columns, int64_t word, int shift) {
    for (;;) {
      std::vector<size_t> left;
      for (size_t i = 0; i < columns.size() && left.size() < kWord; ++i) {
        if (!IsZero(columns[i])) left.push_back(i);
      }
      if (left.empty()) return;
      // Two bytes have a pair each.
      const auto place = [&](size_t i) { return left.size() <= 2 ? 2 * i : i; };
      std::array<int8_t, kWord> bytes{};
      std::array<Column, kWord> taken;
      taken.fill(Column(static_cast<size_t>(channels())));
      for (size_t i = 0; i < left.size(); ++i) {
        bytes[place(i)] = static_cast<int8_t>(left[i]);
        taken[place(i)] = std::move(columns[left[i]]);
      }
      const auto at = static_cast<int64_t>(out_.size());
      out_.resize(out_.size() + static_cast<size_t>(p_.EntryBytes()));
      PutInt(at, word);
      PutInt(at + 4, Picks(bytes, shift));
      PutWeights(at + 8, taken[0], taken[1], taken[2], taken[3]);
      for (size_t i = 0; i < left.size(); ++i) columns[left[i]] = std::move(taken[place(i)]);
      ++entries_;
    }
  }

  // Each byte has a pair of its own, so i8 always fits; rests are of products, whose weights are i8.
  void PackRest() {
    std::vector<Column> columns;
    AddColumns(p_.whole_words(), columns);
    Column none(static_cast<size_t>(channels()));
    for (int first = 0; first < p_.rest; first += 2) {
      const std::array<int8_t, kWord> bytes = {static_cast<int8_t>(first), 0,
                                               static_cast<int8_t>(first + 1), 0};
      PutPicks(bytes);
      PutWeights(weights_at_, columns[static_cast<size_t>(first)], none,
                 columns[static_cast<size_t>(first + 1)], none);
      weights_at_ += channels() * kWord;
    }
  }

  void PutWord(std::vector<Column>& columns, std::span<const int8_t> bytes) {
    PutPicks(bytes);
    const auto column = [&](size_t i) -> Column& { return columns[static_cast<size_t>(bytes[i])]; };
    PutWeights(weights_at_, column(0), column(1), column(2), column(3));
    weights_at_ += channels() * kWord;
  }

  void PutWeights(int64_t at, Column& a, Column& b, Column& c, Column& d) {
    for (size_t i = 0; i < a.size(); ++i) {
      const auto [w0, w1] = TakePair(a[i], b[i]);
      const auto [w2, w3] = TakePair(c[i], d[i]);
      const std::array<int8_t, kWord> word = {w0, w1, w2, w3};
      std::memcpy(out_.data() + at + static_cast<int64_t>(i) * kWord, word.data(), kWord);
    }
  }

  static int64_t Picks(std::span<const int8_t> bytes, int shift) {
    int64_t picks = 0;
    for (size_t i = 0; i < bytes.size(); ++i) picks |= int64_t{bytes[i] + shift} << (8 * i);
    return picks;
  }

  void PutPicks(std::span<const int8_t> bytes) {
    PutInt(p_.PicksAt() + 4 * picks_++, Picks(bytes, 0));
  }

  void PutInt(int64_t at, int64_t value) {
    const auto word = static_cast<int32_t>(value);
    std::memcpy(out_.data() + at, &word, sizeof(word));
  }

  const PickedPanels& p_;
  const std::span<const int16_t> weights_;
  std::vector<std::byte> out_;
  int64_t vectors_ = 1;     // of this panel
  size_t from_ = 0;         // its weights
  int64_t weights_at_ = 0;  // next word of the pack's weights
  int64_t picks_ = 0;       // so many are written
  int64_t entries_ = 0;
};

}  // namespace

int64_t PickedPanels::PicksAt() const {
  return groups * split.vectors * StoredWords() * lanes * kWord;
}
int64_t PickedPanels::StartsAt() const { return PicksAt() + panels() * StoredWords() * kWord; }
int64_t PickedPanels::EntriesAt() const { return StartsAt() + (panels() + 1) * 4; }

WordGroup GroupOf(int64_t c, int64_t words, int64_t most) {
  WordGroup group;
  for (int64_t count = most; count > 1; count /= 2) {
    const int64_t whole = (words - group.first) / count * count;
    if (c < group.first + whole) return {c - (c - group.first) % count, count};
    group.first += whole;
  }
  return {c, 1};
}

int64_t MostTogether(int unroll) { return unroll % 4 == 0 ? 4 : unroll % 2 == 0 ? 2 : 1; }

std::vector<std::byte> PackPickedPairs(const PickedPanels& panels,
                                       std::span<const int16_t> weights) {
  return Packer(panels, weights).Pack();
}

}  // namespace quench::codegen
