#include "services/quantizer/flips.h"

#include <Eigen/Core>
#include <algorithm>

namespace quench::quantizer {

struct Moments::Matrix {
  Eigen::MatrixXf sums;  // the lower triangle, until Finish
};

Moments::Moments(int64_t length) : matrix_(std::make_unique<Matrix>()) {
  matrix_->sums = Eigen::MatrixXf::Zero(length, length);
}
Moments::Moments(Moments&&) noexcept = default;
Moments::~Moments() = default;

void Moments::Add(const float* rows, int64_t count, int64_t stride) {
  // As columns: what is a row there is contiguous.
  const Eigen::Map<const Eigen::MatrixXf, 0, Eigen::OuterStride<>> places(
      rows, matrix_->sums.rows(), count, Eigen::OuterStride<>(stride));
  matrix_->sums.selfadjointView<Eigen::Lower>().rankUpdate(places);
}

void Moments::Finish() {
  Eigen::MatrixXf& sums = matrix_->sums;
  sums.triangularView<Eigen::StrictlyUpper>() = sums.transpose();
  sums.diagonal().array() += sums.diagonal().mean() / 100;
}

FlipRows::FlipRows(int64_t rows, int64_t row_length)
    : count(rows),
      length(row_length),
      weight(static_cast<size_t>(rows * row_length)),
      error(weight.size()),
      step(weight.size()),
      flipped(weight.size()) {}

FlipNoise& FlipNoise::operator+=(const FlipNoise& other) {
  signal += other.signal;
  nearest += other.nearest;
  adapted += other.adapted;
  return *this;
}

namespace {

// The sum of products of columns of two matrices.
double SumOfProducts(const Eigen::MatrixXf& a, const Eigen::Map<Eigen::MatrixXf>& b) {
  double sum = 0;
  for (Eigen::Index i = 0; i < a.cols(); ++i)
    sum += std::max(0.0, a.col(i).cast<double>().dot(b.col(i).cast<double>()));
  return sum;
}

}  // namespace

FlipNoise Flip(const Moments& moments, FlipRows& rows) {
  constexpr double kLeastGain = 1e-7;  // of the noise at first: above what rounding of floats gives
  const Eigen::MatrixXf& sums = moments.matrix().sums;
  // A row of ours is a column here.
  const Eigen::Map<Eigen::MatrixXf> weight(rows.weight.data(), rows.length, rows.count);
  Eigen::Map<Eigen::MatrixXf> error(rows.error.data(), rows.length, rows.count);
  Eigen::Map<Eigen::ArrayXXf> step(rows.step.data(), rows.length, rows.count);
  FlipNoise noise;
  noise.signal = SumOfProducts(sums * weight, weight);
  Eigen::MatrixXf gradient = sums * error;  // half of it
  noise.nearest = SumOfProducts(gradient, error);
  const double least = kLeastGain * noise.nearest / static_cast<double>(rows.count);
  for (int64_t row = 0; row < rows.count; ++row) {
    const Eigen::ArrayXf own = step.col(row).square() * sums.diagonal().array();
    // A weight may move more than once as others do: twice the row is beyond what rows take.
    for (int64_t moves = 0; moves < 2 * rows.length; ++moves) {
      Eigen::Index best = 0;
      const float change = (2 * step.col(row) * gradient.col(row).array() + own).minCoeff(&best);
      if (!(change < -least)) break;
      float& moved = step(best, row);
      gradient.col(row) += moved * sums.col(best);
      error(best, row) += moved;
      moved = -moved;
      rows.flipped[static_cast<size_t>(row * rows.length + best)] ^= 1;
    }
  }
  noise.adapted = SumOfProducts(gradient, error);
  return noise;
}

}  // namespace quench::quantizer
