#include "services/codegen/kernels/attention_halves.h"

namespace quench::codegen {

void AttentionHalves::PackKeys(Ptr tile, int vectors, int v, const std::vector<Ptr>& keys) {
  const int lanes = plan_.lanes;
  const int64_t words = plan_.shape.size / 2, pitch = vectors * vector_;
  for (int64_t word = 0; word < plan_.size_words(); word += lanes) {
    const Int there = b_.I(words - word);
    std::vector<Vec> rows;
    for (const Ptr& key : keys)
      rows.push_back(b_.LoadFirst(key + 4 * word, there, lanes, DataType::kI32));
    const std::vector<Vec> transposed = b_.Transposed(rows);
    const Ptr to = tile + (word * pitch + vector_ * v);
    for (int i = 0; i < lanes; ++i) b_.Store(to + pitch * i, transposed[static_cast<size_t>(i)]);
  }
}

void AttentionHalves::PackValues(Ptr tile, int vectors, int v, Ptr from, int64_t step, Int keys,
                                 Int columns) {
  const DataType type = plan_.shape.type;
  const int64_t pitch = vectors * vector_;
  const auto pair = [&](Int first, const std::function<Int(Int)>& there) {
    const auto value = [&](Int key) {
      return b_.Narrow(b_.LoadFirst(from + key * step, there(key), plan_.lanes, type), type);
    };
    const Vec parts[] = {value(first), value(first + 1)};
    b_.StoreInterleaved(tile + first / 2 * pitch + vector_ * v, parts);
  };
  const Int whole = keys / 2 * 2;
  b_.For(b_.I(0), whole, 2, [&](Int first) { pair(first, [&](Int) { return columns; }); });
  b_.For(whole, Padded(keys), 2, [&](Int first) {
    pair(first, [&](Int key) { return Min(columns, (keys - key) * plan_.lanes); });
  });
}

void AttentionHalves::PackQuery(Ptr from, Ptr to) {
  for (int64_t word = 0; word < plan_.size_words(); word += plan_.lanes) {
    const Int there = b_.I(plan_.shape.size / 2 - word);
    b_.Store(to + 4 * word, b_.LoadFirst(from + 4 * word, there, plan_.lanes, DataType::kI32));
  }
}

MicroReduction AttentionHalves::Reduction(Int halves) const {
  MicroReduction r;
  r.lanes = plan_.lanes;
  r.channels = r.unroll = plan_.unroll;
  r.blocks = halves / plan_.kStep;
  r.block_stride = b_.I(4 * r.channels);
  r.kh = r.kw = b_.I(1);
  r.kh_stride = r.kw_stride = b_.I(0);
  r.channel_stride = b_.I(4);
  r.tail = b_.I(0);
  return r;
}

}  // namespace quench::codegen
