#include "services/codegen/forms/picked_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

namespace quench::codegen::picked_pairs_test {
namespace {

using Weight = std::function<int(std::mt19937&)>;

// A pack as the CPU reads it: pairs of products saturate in i16.
class Reader {
 public:
  Reader(const PickedPanels& panels, const std::vector<std::byte>& pack)
      : p_(panels), pack_(pack) {}

  // Sums of a panel's channels; x has the panel's bytes, one run after another, then the rest.
  std::vector<int64_t> Sums(int64_t panel, const std::vector<uint8_t>& x) {
    channels_ = p_.split.Size(panel % p_.split.parts()) * p_.lanes;
    sums_.assign(static_cast<size_t>(channels_), 0);
    int64_t at = 0;
    for (int64_t before = 0; before < panel; ++before)
      at += p_.split.Size(before % p_.split.parts()) * p_.lanes * p_.StoredWords() * 4;
    int64_t picks = p_.PicksAt() + panel * p_.StoredWords() * 4;
    for (int64_t row = 0; row < p_.rows; ++row) {
      for (int64_t c = 0; c < p_.run; ++c, at += channels_ * 4, picks += 4) {
        const WordGroup group = GroupOf(c, p_.run, p_.most);
        Add(at, picks, &x[static_cast<size_t>((row * p_.run + group.first) * 4)], group.count * 4);
      }
    }
    for (int64_t i = 0; i < (p_.rest + 1) / 2; ++i, at += channels_ * 4, picks += 4)
      Add(at, picks, &x[static_cast<size_t>(p_.whole_words() * 4)], 4);
    for (int64_t i = Int(p_.StartsAt() + 4 * panel); i < Int(p_.StartsAt() + 4 * (panel + 1));
         ++i) {
      const int64_t entry = p_.EntriesAt() + i * p_.EntryBytes();
      const int64_t first = Int(entry);
      EXPECT_LE(first % p_.run + p_.EntryWords(), p_.run);
      Add(entry + 8, entry + 4, &x[static_cast<size_t>(first * 4)], p_.EntryWords() * 4);
    }
    return sums_;
  }

 private:
  int64_t Int(int64_t at) const {
    int32_t value = 0;
    std::memcpy(&value, pack_.data() + at, sizeof(value));
    return value;
  }

  void Add(int64_t weights, int64_t picks, const uint8_t* group, int64_t bytes) {
    const auto word = static_cast<uint32_t>(Int(picks));
    for (int64_t c = 0; c < channels_; ++c) {
      for (int pair = 0; pair < 4; pair += 2) {
        int sum = 0;
        for (int i = pair; i < pair + 2; ++i) {
          const uint32_t pick = word >> (8 * i) & 255;
          ASSERT_LT(pick, bytes);
          sum += group[pick] * static_cast<int8_t>(pack_[static_cast<size_t>(weights + c * 4 + i)]);
        }
        sums_[static_cast<size_t>(c)] += std::clamp(sum, -32768, 32767);
      }
    }
  }

  const PickedPanels& p_;
  const std::vector<std::byte>& pack_;
  int64_t channels_ = 0;
  std::vector<int64_t> sums_;
};

// Sums of every panel are exact for inputs that saturate if any do: 255 where a channel's weight has one
// sign, 0 where it has the other.
void CheckExact(PickedPanels panels, const Weight& draw, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t words = panels.whole_words() + (panels.rest > 0 ? 1 : 0);
  std::vector<std::vector<int16_t>> of_panel;
  std::vector<int16_t> all;
  for (int64_t panel = 0; panel < panels.panels(); ++panel) {
    const int64_t channels = panels.split.Size(panel % panels.split.parts()) * panels.lanes;
    std::vector<int16_t> weights(static_cast<size_t>(words * channels * 4));
    for (int64_t i = 0; i < static_cast<int64_t>(weights.size()); ++i) {
      const bool none = panels.rest > 0 && i / (channels * 4) == words - 1 && i % 4 >= panels.rest;
      weights[static_cast<size_t>(i)] = static_cast<int16_t>(none ? 0 : draw(random));
    }
    all.insert(all.end(), weights.begin(), weights.end());
    of_panel.push_back(std::move(weights));
  }
  const std::vector<std::byte> pack = PackPickedPairs(panels, all);
  Reader reader(panels, pack);
  for (int64_t panel = 0; panel < panels.panels(); ++panel) {
    const std::vector<int16_t>& weights = of_panel[static_cast<size_t>(panel)];
    const auto channels = static_cast<int64_t>(weights.size()) / words / 4;
    for (int64_t c = 0; c < channels; ++c) {
      for (const int sign : {1, -1}) {
        std::vector<uint8_t> x(static_cast<size_t>(words * 4));
        const auto weight = [&](int64_t byte, int64_t channel) {
          return weights[static_cast<size_t>((byte / 4 * channels + channel) * 4 + byte % 4)];
        };
        for (int64_t i = 0; i < words * 4; ++i)
          x[static_cast<size_t>(i)] = weight(i, c) * sign > 0 ? 255 : 0;
        std::vector<int64_t> expected(static_cast<size_t>(channels));
        for (int64_t i = 0; i < words * 4; ++i) {
          for (int64_t o = 0; o < channels; ++o)
            expected[static_cast<size_t>(o)] += int64_t{x[static_cast<size_t>(i)]} * weight(i, o);
        }
        ASSERT_EQ(reader.Sums(panel, x), expected) << "panel " << panel << ", channel " << c;
      }
    }
  }
}

int Bell(std::mt19937& random) {
  return std::clamp(static_cast<int>(std::normal_distribution<double>(0, 32)(random)), -127, 127);
}
int Any(std::mt19937& random) { return static_cast<int>(random() % 256) - 128; }
int Largest(std::mt19937& random) { return random() % 2 == 0 ? 127 : -128; }
int Far(std::mt19937& random) { return static_cast<int>(random() % 511) - 255; }

TEST(PickedPairs, AreExactWhateverTheWeights) {
  uint32_t seed = 1;
  for (const Weight& draw : {Weight(Bell), Weight(Any), Weight(Largest), Weight(Far)}) {
    CheckExact({.split = SplitIntoPanels(5, 2), .lanes = 8, .rows = 3, .run = 6, .most = 2}, draw,
               ++seed);
    CheckExact({.split = SplitIntoPanels(3, 3), .lanes = 8, .rows = 2, .run = 7, .most = 2}, draw,
               ++seed);
    CheckExact({.split = SplitIntoPanels(2, 1), .lanes = 4, .rows = 5, .run = 1, .most = 1}, draw,
               ++seed);
    CheckExact(
        {.groups = 2, .split = SplitIntoPanels(3, 2), .lanes = 16, .rows = 2, .run = 4, .most = 4},
        draw, ++seed);
    for (const int64_t run : {1, 2, 3, 5, 6, 7, 8})
      CheckExact({.split = SplitIntoPanels(2, 2), .lanes = 8, .rows = 1, .run = run, .most = 4},
                 draw, ++seed);
  }
}

TEST(PickedPairs, OfARestHaveAWordForTwoBytes) {
  for (const int64_t rest : {1, 2, 3}) {
    for (const int64_t run : {0, 1, 9}) {
      for (const Weight& draw : {Weight(Any), Weight(Largest)}) {
        CheckExact(
            {.split = SplitIntoPanels(2, 2), .lanes = 8, .run = run, .most = 4, .rest = rest}, draw,
            7);
      }
    }
  }
}

// Bell-shaped weights have orders in which next to nothing is left over.
TEST(PickedPairs, LeaveLittleOver) {
  std::mt19937 random(3);
  const PickedPanels panels{
      .split = SplitIntoPanels(4, 2), .lanes = 8, .rows = 64, .run = 2, .most = 2};
  std::vector<int16_t> weights(static_cast<size_t>(64 * 2 * 4 * 32));
  for (int16_t& weight : weights) weight = static_cast<int16_t>(Bell(random) * 3 / 4);
  const auto size = static_cast<int64_t>(PackPickedPairs(panels, weights).size());
  EXPECT_LT((size - panels.EntriesAt()) / panels.EntryBytes(), 128 * 2 / 20);
}

TEST(PickedPairs, GroupsAreOfFourTwoAndOne) {
  std::vector<std::pair<int64_t, int64_t>> groups;
  for (const int64_t c : {0, 3, 4, 5, 6}) {
    const WordGroup group = GroupOf(c, 7, 4);
    groups.emplace_back(group.first, group.count);
  }
  EXPECT_EQ(groups,
            (std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {0, 4}, {4, 2}, {4, 2}, {6, 1}}));
}

}  // namespace
}  // namespace quench::codegen::picked_pairs_test
