// The search behind adaptive rounding: rows of weights, each of which may take one of two values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace quench::quantizer {

// E[x x^T] of the inputs that a row is multiplied by, times the number of places.
class Moments {
 public:
  explicit Moments(int64_t length);
  Moments(Moments&&) noexcept;
  ~Moments();
  // `count` rows of floats, `stride` apart, the first `length` of each.
  void Add(const float* rows, int64_t count, int64_t stride);
  // Before Flip: a hundredth of the mean square is added to each square, so that weights about
  // whose inputs the samples say nothing stay with the nearest integer (the same share as in
  // Frantar et al. 2022, arXiv 2210.17323, section 3.3).
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
  std::vector<float> error;  // the integer's value minus the weight
  std::vector<float> step;   // from that value to the other one; 0: there is none
  std::vector<uint8_t> flipped;
};

// Powers, summed over places.
struct FlipNoise {
  double signal = 0, nearest = 0, adapted = 0;
  FlipNoise& operator+=(const FlipNoise& other);
};

// In each row, moves single weights, each time the one that lowers error^T moments error most,
// until none does. Sets `flipped`, and updates `error` and `step`.
FlipNoise Flip(const Moments& moments, FlipRows& rows);

}  // namespace quench::quantizer
