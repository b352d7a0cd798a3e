// The maths functions against libm: bounds in units in the last place over dense sweeps, and
// special values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/services/codegen/emit/harness.h"

namespace quench::codegen::math_test {
namespace {

using loops::BinaryOp;
using loops::Builder;
using loops::E;
using loops::UnaryOp;

// y[i] = op(x[i]), over any number of elements.
loops::Function UnaryNest(UnaryOp op, DataType type) {
  Builder b("unary");
  const E n = b.Slot(0);
  const auto x = b.Input("x", type, {n});
  const auto y = b.Output("y", type, {n});
  b.ParallelFor(n, [&](E i) { b.Store(y, {i}, Unary(op, x.At({i}))); });
  return b.Finish();
}

loops::Function PowNest(DataType type) {
  Builder b("pow");
  const E n = b.Slot(0);
  const auto x = b.Input("x", type, {n});
  const auto y = b.Input("y", type, {n});
  const auto z = b.Output("z", type, {n});
  b.ParallelFor(n, [&](E i) { b.Store(z, {i}, Pow(x.At({i}), y.At({i}))); });
  return b.Finish();
}

long double Logistic(long double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  UnaryOp op;
  long double (*reference)(long double);
  double low, high;
  double ulps32, ulps64;
};

const Case kCases[] = {
    {UnaryOp::kSqrt, std::sqrt, 0, 1e30, 0.51, 0.51},
    {UnaryOp::kExp, std::exp, -104, 89, 2, 1.5},
    {UnaryOp::kExp, std::exp, -1, 1, 1.5, 1.5},
    {UnaryOp::kLog, std::log, 1e-38, 1e38, 2, 1.5},
    {UnaryOp::kLog, std::log, 0.4, 2.5, 2, 1.5},
    {UnaryOp::kSin, std::sin, -10, 10, 0.6, 1.5},
    {UnaryOp::kSin, std::sin, -1e5, 1e5, 0.6, 2.5},
    {UnaryOp::kCos, std::cos, -10, 10, 0.6, 1.5},
    {UnaryOp::kCos, std::cos, -1e5, 1e5, 0.6, 2.5},
    {UnaryOp::kTan, std::tan, -1.5, 1.5, 0.6, 3},
    {UnaryOp::kTan, std::tan, -1e4, 1e4, 0.6, 3},
    {UnaryOp::kAsin, std::asin, -1, 1, 0.6, 2.5},
    {UnaryOp::kAcos, std::acos, -1, 1, 0.6, 2},
    {UnaryOp::kAtan, std::atan, -100, 100, 0.6, 1.5},
    {UnaryOp::kSinh, std::sinh, -88, 88, 0.6, 3},
    {UnaryOp::kSinh, std::sinh, -2, 2, 0.6, 3},
    {UnaryOp::kCosh, std::cosh, -88, 88, 0.6, 3},
    {UnaryOp::kTanh, std::tanh, -10, 10, 3, 3},
    {UnaryOp::kTanh, std::tanh, -0.7, 0.7, 3, 3},
    {UnaryOp::kAsinh, std::asinh, -1e4, 1e4, 0.6, 4},
    {UnaryOp::kAcosh, std::acosh, 1, 1e4, 0.6, 4},
    {UnaryOp::kAtanh, std::atanh, -0.999, 0.999, 0.6, 4},
    {UnaryOp::kErf, std::erf, -5, 5, 2.5, 3},
    {UnaryOp::kLogistic, Logistic, -87, 87, 3, 3},
    {UnaryOp::kLogistic, Logistic, -8, 8, 3, 3},
};

constexpr int64_t kPoints = 20011;  // not a multiple of any vector width

template <typename T>
std::vector<T> Sweep(double low, double high) {
  std::vector<T> points;
  for (int64_t i = 0; i < kPoints; ++i) {
    points.push_back(static_cast<T>(low + (high - low) * static_cast<double>(i) / (kPoints - 1)));
  }
  // Geometric: small magnitudes, down to denormals, on both sides.
  for (double m = static_cast<double>(std::numeric_limits<T>::denorm_min()); m < 1; m *= 7) {
    if (m <= high && m >= low) points.push_back(static_cast<T>(m));
    if (-m >= low) points.push_back(static_cast<T>(-m));
  }
  return points;
}

// |actual - exact| in units of the last place of T at the exact value.
template <typename T>
double Ulps(T actual, long double exact) {
  if (std::isnan(actual) || std::isnan(exact))
    return std::isnan(actual) == std::isnan(exact) ? 0 : 1e9;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(rounded) || std::isinf(actual)) {
    // Overflow in the last place is an error of one.
    const T largest = std::numeric_limits<T>::max();
    return actual == rounded || std::fabs(std::isinf(rounded) ? actual : rounded) == largest ? 0
                                                                                             : 1e9;
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent;
  const long double ulp =
      std::ldexp(1.0L, std::max(exponent, lowest) - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - exact) / ulp);
}

// One module with every function of one element type.
template <typename T>
class MathModule {
 public:
  static constexpr DataType kType = sizeof(T) == 4 ? DataType::kF32 : DataType::kF64;

  explicit MathModule(const Target& target, bool vectorise) : target_(target) {
    auto builder = *ModuleBuilder::Create(target);
    symbols_.AddInput("n", {0, 0});
    std::vector<EmittedKernel> kernels;
    for (const Case& c : kCases)
      Add(*builder, static_cast<int>(c.op), UnaryNest(c.op, kType), vectorise, kernels);
    Add(*builder, kPowKey, PowNest(kType), vectorise, kernels);
    library_ = *Library::Load(target, *builder, kernels);
  }

  std::vector<T> Run(int key, std::vector<std::vector<T>> inputs) {
    std::vector<T> result(inputs[0].size());
    std::vector<void*> pointers;
    for (std::vector<T>& input : inputs) pointers.push_back(input.data());
    pointers.push_back(result.data());
    int64_t slots[8] = {static_cast<int64_t>(result.size())};
    const EmittedKernel& kernel = kernels_.at(key);
    auto all = *symbols_.Evaluate(std::vector<int64_t>{slots[0]});
    EXPECT_EQ(library_->Find(kernel.symbol)(pointers.data(), all.data(), 0,
                                            SymbolTable::ValueOf(kernel.tasks, all)),
              0);
    return result;
  }
  static constexpr int kPowKey = -1;

 private:
  void Add(ModuleBuilder& builder, int key, const loops::Function& function, bool vectorise,
           std::vector<EmittedKernel>& kernels) {
    if (kernels_.count(key) != 0) return;
    auto kernel = EmitLoops(builder, target_, function, symbols_, vectorise);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernels_[key] = *kernel;
    kernels.push_back(*kernel);
  }

  const Target target_;
  SymbolTable symbols_;
  std::map<int, EmittedKernel> kernels_;
  std::unique_ptr<Library> library_;
};

template <typename T>
void CheckUnary(MathModule<T>& module, const char* target, double slack) {
  for (const Case& c : kCases) {
    const std::vector<T> x = Sweep<T>(c.low, c.high);
    const std::vector<T> y = module.Run(static_cast<int>(c.op), {x});
    double worst = 0;
    T at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = Ulps<T>(y[i], c.reference(static_cast<long double>(x[i])));
      if (error > worst) worst = error, at = x[i];
    }
    const double bound = (sizeof(T) == 4 ? c.ulps32 : c.ulps64) * slack;
    EXPECT_LE(worst, bound) << target << " " << loops::Name(c.op) << " in [" << c.low << ", "
                            << c.high << "] at " << at;
  }
}

template <typename T>
void CheckSpecial(MathModule<T>& module) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T max = std::numeric_limits<T>::max(), tiny = std::numeric_limits<T>::denorm_min();
  const std::vector<T> x = {0,    T(-0.0), 1,    -1,    2,    -2,    T(0.5), inf,
                            -inf, nan,     tiny, -tiny, 1000, -1000, T(1.5)};
  for (const Case& c : kCases) {
    const std::vector<T> y = module.Run(static_cast<int>(c.op), {x});
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = c.reference(static_cast<long double>(x[i]));
      EXPECT_LE(Ulps<T>(y[i], exact), 8) << loops::Name(c.op) << "(" << x[i] << ") = " << y[i]
                                         << ", not " << static_cast<double>(exact);
      if (exact == 0) {
        EXPECT_EQ(std::signbit(y[i]), std::signbit(exact)) << loops::Name(c.op) << " " << x[i];
      }
    }
  }
  const T values[] = {0,       T(-0.0), 1,   -1,   2,   -2,   3,   -3,      T(0.5),
                      T(-0.5), T(2.5),  inf, -inf, nan, tiny, max, T(1e30), T(-1e-30)};
  std::vector<T> base, power;
  for (T a : values) {
    for (T b : values) base.push_back(a), power.push_back(b);
  }
  const std::vector<T> z = module.Run(MathModule<T>::kPowKey, {base, power});
  for (size_t i = 0; i < z.size(); ++i) {
    const T exact = std::pow(base[i], power[i]);
    EXPECT_LE(Ulps<T>(z[i], static_cast<long double>(exact)), 4)
        << base[i] << " ^ " << power[i] << " = " << z[i] << ", not " << exact;
    if (exact == 0) {
      EXPECT_EQ(std::signbit(z[i]), std::signbit(exact)) << base[i] << " ^ " << power[i];
    }
  }
}

template <typename T>
void CheckPow(MathModule<T>& module, double bound) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> log_base(-20, 20), exponent(-12, 12);
  std::vector<T> base, power;
  for (int i = 0; i < 20011; ++i) {
    base.push_back(static_cast<T>(std::exp(log_base(random))));
    power.push_back(static_cast<T>(exponent(random)));
  }
  const std::vector<T> z = module.Run(MathModule<T>::kPowKey, {base, power});
  double worst = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    const long double exact =
        std::pow(static_cast<long double>(base[i]), static_cast<long double>(power[i]));
    worst = std::max(worst, Ulps<T>(z[i], exact));
  }
  EXPECT_LE(worst, bound);
}

TEST(Math, F32OnThisMachine) {
  MathModule<float> module(HostTarget(), true);
  CheckUnary(module, "vectors", 1);
  CheckSpecial(module);
  CheckPow(module, 0.6);
}

// Where 1 + e^-x leaves the range of f32 the function is 0, a little before its results are.
TEST(Math, LogisticEndsInZero) {
  MathModule<float> module(HostTarget(), true);
  std::vector<float> x;
  for (float value = -87; value > -110; value -= 0.03125f) x.push_back(value);
  const std::vector<float> y = module.Run(static_cast<int>(UnaryOp::kLogistic), {x});
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(y[i], static_cast<double>(Logistic(x[i])), x[i] < -88 ? 5e-39 : 1e-44) << x[i];
}

TEST(Math, F32ScalarCodeAgrees) {
  MathModule<float> module(HostTarget(), false);
  CheckUnary(module, "scalars", 1);
  CheckSpecial(module);
}

TEST(Math, F32WithoutFusedMultiplyAdd) {
  MathModule<float> module(PlainTarget(), true);
  CheckUnary(module, "no fma", 1.6);
  CheckSpecial(module);
  CheckPow(module, 0.6);
}

TEST(Math, F64OnThisMachine) {
  MathModule<double> module(HostTarget(), true);
  CheckUnary(module, "vectors", 1);
  CheckSpecial(module);
  CheckPow(module, 2);
}

TEST(Math, F64WithoutFusedMultiplyAdd) {
  MathModule<double> module(PlainTarget(), true);
  CheckUnary(module, "no fma", 1.6);
  CheckSpecial(module);
  CheckPow(module, 2);
}

}  // namespace
}  // namespace quench::codegen::math_test
