#include "services/codegen/kernels/winograd_transform.h"

#include <array>
#include <cstddef>

namespace quench::codegen {
namespace {

// Beside 0 and infinity, points come in pairs +p and -p, whose rows share their even and odd parts.
constexpr std::array<double, 3> kPairs = {1, 2, 0.5};

size_t Pairs(const WinogradSize& size) { return static_cast<size_t>(size.side() - 2) / 2; }

// A product of polynomials, coefficients from the constant on.
std::vector<double> Multiply(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> product(a.size() + b.size() - 1, 0);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) product[i + j] += a[i] * b[j];
  }
  return product;
}

// The product of x^2 - p^2 over the pairs, without the one of `skipped`.
std::vector<double> Squares(const WinogradSize& size, size_t skipped) {
  std::vector<double> product = {1};
  for (size_t i = 0; i < Pairs(size); ++i) {
    if (i != skipped) product = Multiply(product, {-kPairs[i] * kPairs[i], 0, 1});
  }
  return product;
}

// The sum of coefficients[i] values[i], without those that are 0; at least one is not.
Vec Combine(VectorBuilder& b, std::span<const double> coefficients, std::span<const Vec> values) {
  const int lanes = values.front().lanes;
  Vec sum;
  for (const bool ones : {true, false}) {  // what needs no multiplication begins
    for (size_t i = 0; i < coefficients.size(); ++i) {
      const double c = coefficients[i];
      if (c == 0 || (c == 1) != ones) continue;
      if (!sum.valid()) {
        sum = ones ? values[i] : b.Apply(VecOp::kMul, values[i], b.F(c, lanes));
      } else if (c == 1 || c == -1) {
        sum = b.Apply(c == 1 ? VecOp::kAdd : VecOp::kSub, sum, values[i]);
      } else {
        sum = b.Fma(values[i], b.F(c, lanes), sum);
      }
    }
  }
  return sum;
}

// The even (odd = 0) or odd terms of a polynomial.
std::vector<double> Terms(std::vector<double> polynomial, size_t odd) {
  for (size_t i = 1 - odd; i < polynomial.size(); i += 2) polynomial[i] = 0;
  return polynomial;
}

}  // namespace

std::vector<double> WinogradWeights(const WinogradSize& size, std::span<const double> taps) {
  const size_t none = Pairs(size);
  // The filter at point p over the product of p's distances to the other finite points.
  const auto at = [&](double p, double distances) {
    double value = 0;
    for (size_t i = taps.size(); i-- > 0;) value = value * p + taps[i];
    return value / distances;
  };
  std::vector<double> values = {at(0, Squares(size, none)[0])};
  for (size_t i = 0; i < Pairs(size); ++i) {
    const double p = kPairs[i];
    double distances = 2 * p * p;  // to -p and to 0
    for (size_t j = 0; j < Pairs(size); ++j) {
      if (j != i) distances *= p * p - kPairs[j] * kPairs[j];
    }
    values.push_back(at(p, distances));
    values.push_back(at(-p, distances));
  }
  values.push_back(taps.back());
  return values;
}

std::vector<Vec> WinogradFilter(VectorBuilder& b, const WinogradSize& size,
                                std::span<const Vec> taps) {
  std::vector<std::vector<double>> columns;  // of G, a tap each
  for (size_t tap = 0; tap < taps.size(); ++tap) {
    std::vector<double> unit(taps.size(), 0);
    unit[tap] = 1;
    columns.push_back(WinogradWeights(size, unit));
  }
  std::vector<Vec> rows;
  for (size_t row = 0; row < static_cast<size_t>(size.side()); ++row) {
    std::vector<double> coefficients;
    for (const std::vector<double>& column : columns) coefficients.push_back(column[row]);
    rows.push_back(Combine(b, coefficients, taps));
  }
  return rows;
}

std::vector<Vec> WinogradInput(VectorBuilder& b, const WinogradSize& size,
                               std::span<const Vec> values) {
  const std::vector<double> all = Squares(size, Pairs(size));
  std::vector<Vec> rows = {Combine(b, all, values)};
  for (size_t i = 0; i < Pairs(size); ++i) {
    // x (x + p) Q(x^2) for p and x (x - p) Q(x^2) for -p.
    const std::vector<double> polynomial = Multiply({0, kPairs[i], 1}, Squares(size, i));
    const Vec even = Combine(b, Terms(polynomial, 0), values);
    const Vec odd = Combine(b, Terms(polynomial, 1), values);
    rows.push_back(b.Apply(VecOp::kAdd, even, odd));
    rows.push_back(b.Apply(VecOp::kSub, even, odd));
  }
  rows.push_back(Combine(b, Multiply({0, 1}, all), values));
  return rows;
}

std::vector<Vec> WinogradOutput(VectorBuilder& b, const WinogradSize& size,
                                std::span<const Vec> values) {
  std::vector<Vec> sums, differences;
  for (size_t i = 0; i < Pairs(size); ++i) {
    sums.push_back(b.Apply(VecOp::kAdd, values[2 * i + 1], values[2 * i + 2]));
    differences.push_back(b.Apply(VecOp::kSub, values[2 * i + 1], values[2 * i + 2]));
  }
  std::vector<double> powers(Pairs(size), 1);
  std::vector<Vec> results;
  for (int row = 0; row < size.outputs; ++row) {
    Vec result = Combine(b, powers, row % 2 == 0 ? sums : differences);
    if (row == 0) result = b.Apply(VecOp::kAdd, result, values.front());
    if (row == size.outputs - 1) result = b.Apply(VecOp::kAdd, result, values.back());
    results.push_back(result);
    for (size_t i = 0; i < powers.size(); ++i) powers[i] *= kPairs[i];
  }
  return results;
}

}  // namespace quench::codegen
