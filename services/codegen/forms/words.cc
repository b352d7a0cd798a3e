#include "services/codegen/forms/words.h"

#include <vector>

namespace quench::codegen {

void WordEmitter::Multiply(Ptr input, int channels) {
  for (int c = 0; c < channels; ++c) {
    AddWord(c, [&](Int pixel) {
      return b_.Splat(b_.LoadWords(input + r_.channel_stride * c + pixel, 1), r_.lanes);
    });
  }
  Pass(channels);
}

void WordEmitter::AddWord(int c, const std::function<Vec(Int pixel)>& load) {
  BeginRow(c);
  std::vector<Vec> weights;
  for (int v = 0; v < t_.vectors; ++v) {
    const int64_t at = (static_cast<int64_t>(c) * t_.vectors + v) * r_.lanes * 4;
    weights.push_back(b_.Load(weights_.Get() + at, r_.lanes, DataType::kI32));
  }
  BeginWord(c);
  for (size_t p = 0; p < pixels_.size(); ++p) {
    const AddProducts add = Products(load(pixels_[p]));
    for (int v = 0; v < t_.vectors; ++v) {
      const VecVar& sum = Sum(p, v);
      sum.Set(add(sum.Get(), weights[static_cast<size_t>(v)]));
    }
  }
}

void WordEmitter::Pass(int words) {
  weights_.Set(weights_.Get() + static_cast<int64_t>(words) * t_.vectors * r_.lanes * 4);
}

}  // namespace quench::codegen
