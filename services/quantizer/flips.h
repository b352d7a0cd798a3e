// The search behind adaptive rounding: rows of weights, each of which has two places to be.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace quench::quantizer {

// E[x x^T] of what a row is multiplied with, times the number of places.
class Moments {
 public:
  explicit Moments(int64_t length);
  Moments(Moments&&) noexcept;
  ~Moments();
  // `count` rows of floats, `stride` apart, the first `length` of each.
  void Add(const float* rows, int64_t count, int64_t stride);
  // Before Flip: a hundredth of the mean square is added to each square, so that weights of inputs the
  // samples say nothing of stay with the nearest integer (the same share as in Frantar et al. 2022,
  // arXiv 2210.17323, section 3.3).
  void Finish();

  struct Matrix;
  const Matrix& matrix() const { return *matrix_; }

 private:
  std::unique_ptr<Matrix> matrix_;
};

// Rows, one behind the other.
struct FlipRows {
  FlipRows(int64_t count, int64_t length);
  int64_t count = 0, length = 0;
  std::vector<float> weight;
  std::vector<float> error;  // what stands for the weight, minus the weight
  std::vector<float> step;   // from there to its other place; 0: it has none
  std::vector<uint8_t> flipped;
};

// Powers, summed over places.
struct FlipNoise {
  double signal = 0, nearest = 0, adapted = 0;
  FlipNoise& operator+=(const FlipNoise& other);
};

// In each row, moves single weights, each time the one that lowers error^T moments error most, until
// none does. Sets `flipped`, and `error` and `step` as they are then.
FlipNoise Flip(const Moments& moments, FlipRows& rows);

}  // namespace quench::quantizer
