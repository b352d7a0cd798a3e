#include "services/codegen/forms/picked.h"

#include <algorithm>

#include "services/codegen/forms/picked_pairs.h"

namespace quench::codegen {
namespace {

PickedPanels PickedOf(const WeightPanels& panels) {
  return {.groups = panels.groups,
          .split = panels.split,
          .lanes = panels.lanes,
          .rows = panels.rows,
          .run = panels.run,
          .most = MostTogether(panels.unroll),
          .rest = panels.rest};
}

// Where the picks of a panel's words and its entries lie.
struct PanelPicks {
  Ptr picks, entries;
  Int entry_count;
  // `pack` is one of PackPickedPairs.
  static PanelPicks Of(VectorBuilder& b, const PickedPanels& panels, Ptr pack, Int panel) {
    PanelPicks found;
    found.picks = pack + panels.PicksAt() + panel * (panels.StoredWords() * 4);
    const Ptr start = pack + panels.StartsAt() + panel * 4;
    const Int first = b.LoadInt(start, DataType::kI32);
    found.entry_count = b.LoadInt(start + 4, DataType::kI32) - first;
    found.entries = pack + panels.EntriesAt() + first * panels.EntryBytes();
    return found;
  }
};

class PickedEmitter final : public ByteEmitter {
 public:
  PickedEmitter(VectorBuilder& b, const MicroReduction& reduction, const MicroTile& tile,
                const ByteWork& work, const PickedPanels& panels, const PanelPicks& picks)
      : ByteEmitter(b, reduction, tile, work), panels_(panels), panel_(picks) {}

 private:
  void Start() override { picks_ = b_.Variable(panel_.picks); }

  // Words come in groups, from which each picks its bytes.
  void Multiply(Ptr input, int channels) override {
    for (int c = 0; c < channels; ++c) {
      const WordGroup group = GroupOf(c, channels, panels_.most);
      AddWord(c, [&](Int pixel) {
        const Ptr words = input + r_.channel_stride * group.first + pixel;
        return b_.Splat(b_.LoadWords(words, static_cast<int>(group.count)), r_.lanes);
      });
    }
    Pass(channels);
  }

  void BeginWord(int c) override {
    word_picks_ = b_.Splat(b_.LoadWords(picks_.Get() + int64_t{4} * c, 1), r_.lanes);
  }
  AddProducts Products(Vec word) override {
    BytesOperand x = Operand(word);
    x.value = b_.PickBytes(x.value, word_picks_);
    return [this, x](Vec sum, Vec w) { return b_.AddProducts(work_.form, sum, x, w); };
  }

  void Pass(int words) override {
    ByteEmitter::Pass(words);
    picks_.Set(picks_.Get() + int64_t{4} * words);
  }
  // Three weights of a rest cannot always share two pairs.
  int WordsOfRest(int rest) const override { return rest == 3 ? 2 : 1; }

  // Multiplies the entries that picking has left over. An entry names the words of the reduction that it
  // belongs to.
  void Finish() override {
    ByteEmitter::Finish();
    b_.For(b_.I(0), panel_.entry_count, 1, [&](Int i) {
      const Ptr entry = panel_.entries + i * panels_.EntryBytes();
      const Int word = b_.LoadInt(entry, DataType::kI32);
      const Int tap = word / r_.channels, row = tap / r_.kw;
      const Int channel = word % r_.channels, x = tap % r_.kw, y = row % r_.kh;
      const Ptr input = t_.input + (row / r_.kh * r_.block_stride + y * r_.kh_stride +
                                    x * r_.kw_stride + channel * r_.channel_stride);
      const auto count = static_cast<int>(panels_.EntryWords());
      picks_.Set(entry + 4);
      weights_.Set(entry + 8);
      AddWord(0, [&](Int pixel) { return b_.Splat(b_.LoadWords(input + pixel, count), r_.lanes); });
    });
  }

  const PickedPanels& panels_;
  const PanelPicks& panel_;
  PtrVar picks_;
  Vec word_picks_;
};

}  // namespace

std::vector<Tile> PickedForm::Tiles(const Target& target, const TileProblem& problem) const {
  TileProblem own = WithCostOf(BytesForm::kPicked, problem);
  own.most_vectors = std::min<int64_t>(own.most_vectors, most_vectors);
  return RankTiles(target, own);
}

int64_t PickedForm::VectorBytes(const WeightPanels& panels) const {
  return PickedOf(panels).StoredWords() * 4 * panels.lanes;
}

WeightPack PickedForm::Pack(const WeightPanels& panels) const {
  return {"_picked", {{"run", panels.run}, {"most", PickedOf(panels).most}}};
}

TileCode PickedForm::Code(VectorBuilder& b, const WeightPanels& panels,
                          const TileOperands& operands) const {
  const PickedPanels picked = PickedOf(panels);
  ByteWork work = ByteWork::Of(BytesForm::kPicked, panels, operands);
  const PanelPicks picks = PanelPicks::Of(b, picked, operands.pack(0), operands.panel);
  return [&b, picked, picks, work = std::move(work)](const MicroReduction& reduction,
                                                     const MicroTile& tile, const StoreSum& store) {
    PickedEmitter(b, reduction, tile, work, picked, picks).Emit(store);
  };
}

}  // namespace quench::codegen
