// Byte weights for CPUs that add pairs of products in saturating i16 (BytesForm::kPicked). For each
// panel of channels, the bytes of x that are multiplied side by side are chosen such that no pair
// can saturate; the CPU picks them from a group of up to 16, by one instruction. Weights that fit
// in no order of a group are left over, as entries: words that are multiplied additionally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/codegen/forms/register_tile.h"

namespace quench::codegen {

// Panels of words of four bytes each, whose standard order is
// [group][panel][row][word of the run][vectors of the panel][lanes][4]; the bytes of x under a run lie
// side by side in memory, and GroupOf says which of its words are a group. A last word follows the rows if
// `rest` bytes of x, 1 to 3, are left over.
//
// A pack of panels holds, one after the other:
//   weights   in standard order, but with two words for a rest of 3
//   picks     [group][panel][word], i32: for each byte of a word, the number of its byte of x in the group
//   starts    [panels + 1], i32: a panel's first entry
//   entries   i32, the panel's number of the first word that an entry loads, of `EntryWords()` of a run;
//             i32, picks of these; then weights, [vectors][lanes][4]
struct PickedPanels {
  int64_t groups = 1;  // of a convolution: each has all panels of the split
  PanelSplit split;
  int64_t lanes = 8;
  int64_t rows = 1, run = 1;
  int64_t most = 1;  // words of a group of one run: 1, 2 or 4
  int64_t rest = 0;

  int64_t panels() const { return groups * split.parts(); }
  int64_t whole_words() const { return rows * run; }
  // Three weights of a rest cannot always share two pairs.
  int64_t StoredWords() const { return whole_words() + (rest + 1) / 2; }
  int64_t EntryWords() const { return run >= 2 && most >= 2 ? 2 : 1; }
  int64_t PicksAt() const;
  int64_t StartsAt() const;
  int64_t EntriesAt() const;
  int64_t EntryBytes() const { return 8 + split.most() * lanes * 4; }
};

// The most that weights of one sign of a pair may add up to: 255 times it fits i16, also below 0.
inline constexpr int16_t kPairMost = 128;

// The group of word c of `words` that lie side by side: of 4, 2 and 1, no more than `most`.
struct WordGroup {
  int64_t first = 0, count = 1;
};
WordGroup GroupOf(int64_t c, int64_t words, int64_t most);

// The most words of a group, for bodies of `unroll` words.
int64_t MostTogether(int unroll);

// The pack; weights are from -255 to 255 (i8 in a rest), in standard order.
std::vector<std::byte> PackPickedPairs(const PickedPanels& panels,
                                       std::span<const int16_t> weights);

}  // namespace quench::codegen
