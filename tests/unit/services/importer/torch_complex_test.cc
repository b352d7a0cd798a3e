// Complex numbers of PyTorch within a model: spectra, arithmetic, parts, and what is refused.
#include <cmath>

#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_complex_test {
namespace {

using testing::HasSubstr;

class TorchComplex : public TorchTest {
 protected:
  Floats Of(const std::string& body, const Tensor& x) {
    const std::vector<Floats> all =
        Run(Script(Forward("x: Tensor", body)), {x}, Shape("x", x.dims()));
    return all.empty() ? Floats{} : all[0];
  }
  void ExpectNear(const std::string& body, const Tensor& x, const Floats& right) {
    const Floats y = Of(body, x);
    ASSERT_EQ(y.size(), right.size()) << body;
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], right[i], 2e-6F) << body << " at " << i;
  }
};

Tensor Signal() { return Values({4}, {1, 2, 3, 4}); }
Tensor Plane() { return Values({2, 2}, {1, 2, 3, 4}); }

TEST_F(TorchComplex, SpectraAndBack) {
  ExpectNear("return torch.view_as_real(torch.fft_rfft(x))", Signal(), {10, 0, -2, 2, -2, 0});
  ExpectNear("return torch.view_as_real(torch.fft_fft(x))", Signal(),
             {10, 0, -2, 2, -2, 0, -2, -2});
  ExpectNear("return torch.view_as_real(torch.fft_ifft(x))", Signal(),
             {2.5F, 0, -0.5F, -0.5F, -0.5F, 0, -0.5F, 0.5F});
  ExpectNear("return torch.real(torch.fft_ifft(torch.fft_fft(x)))", Signal(), {1, 2, 3, 4});
  ExpectNear("return torch.fft_irfft(torch.fft_rfft(x))", Signal(), {1, 2, 3, 4});
  ExpectNear("return torch.fft_irfft(torch.fft_rfft(x), 4, -1, None)", Signal(), {1, 2, 3, 4});
  // Cut to three numbers, filled to five.
  ExpectNear("return torch.imag(torch.fft_rfft(x, 3))", Signal(), {0, 0.8660254F});
  ExpectNear("return torch.abs(torch.fft_rfft(x, 5))", Signal(), {10, 4.2532540F, 2.6286556F});
}

// At half the rate a spectrum is real: of a negative number the phase is pi, and never -pi.
TEST_F(TorchComplex, PhasesOfTheEndsOfASpectrum) {
  const float pi = 3.14159265F;
  ExpectNear("return torch.angle(torch.fft_rfft(x))",
             Values({8}, {-1, 1, -1, 2, -3, 1, 0.3F, 2.7F}),
             {0, 0.6236515F, 2.4558631F, -0.4911697F, pi});
  ExpectNear("return torch.angle(torch.fft_rfft(x))", Values({4}, {-9, 1, 2, 3}),
             {pi, 2.9617392F, pi});
}

TEST_F(TorchComplex, NormsOfSpectra) {
  const float root = std::sqrt(2.0F);
  ExpectNear("return torch.abs(torch.fft_rfft(x, None, -1, \"ortho\"))", Signal(), {5, root, 1});
  ExpectNear("return torch.abs(torch.fft_rfft(x, None, -1, \"forward\"))", Signal(),
             {2.5F, root / 2, 0.5F});
  for (const char* norm : {"ortho", "forward", "backward"})
    ExpectNear(std::string("return torch.fft_irfft(torch.fft_rfft(x, norm=\"") + norm +
                   "\"), norm=\"" + norm + "\")",
               Signal(), {1, 2, 3, 4});
  ExpectNear("return torch.fft_irfft(torch.fft_rfft(x), norm=\"forward\")", Signal(),
             {4, 8, 12, 16});
}

TEST_F(TorchComplex, SpectraOfPlanes) {
  ExpectNear("return torch.real(torch.fft_rfft2(x))", Plane(), {10, -2, -4, 0});
  ExpectNear("return torch.real(torch.fft_fftn(x))", Plane(), {10, -2, -4, 0});
  ExpectNear("return torch.fft_irfft2(torch.fft_rfft2(x))", Plane(), {1, 2, 3, 4});
  ExpectNear("return torch.real(torch.fft_rfft(x, None, 0))", Plane(), {4, 6, -2, -2});
  ExpectNear("return torch.real(torch.fft_ifft2(torch.fft_fft2(x)))", Plane(), {1, 2, 3, 4});
}

TEST_F(TorchComplex, WhatTransformsDecomposeInto) {
  ExpectNear("return torch.view_as_real(torch._fft_r2c(x, [0], 0, True))", Signal(),
             {10, 0, -2, 2, -2, 0});
  ExpectNear("return torch._fft_c2r(torch._fft_r2c(x, [0], 0, True), [0], 2, 4)", Signal(),
             {1, 2, 3, 4});
  ExpectNear("return torch.real(torch._fft_c2c(torch._fft_r2c(x, [0], 0, False), [0], 0, False))",
             Signal(), {4, 8, 12, 16});
}

TEST_F(TorchComplex, Arithmetic) {
  const std::string z = "z = torch.complex(x, torch.mul(x, 2))\n";  // x (1 + 2i)
  const Tensor x = Values({2}, {1, 3});
  ExpectNear(z + "return torch.view_as_real(torch.mul(z, z))", x, {-3, 4, -27, 36});
  ExpectNear(z + "return torch.real(torch.mul(z, torch.conj(z)))", x, {5, 45});
  ExpectNear(z + "return torch.view_as_real(torch.mul(z, x))", x, {1, 2, 9, 18});
  ExpectNear(z + "return torch.view_as_real(torch.div(z, z))", x, {1, 0, 1, 0});
  ExpectNear(z + "return torch.view_as_real(torch.div(x, z))", x, {0.2F, -0.4F, 0.2F, -0.4F});
  ExpectNear(z + "return torch.view_as_real(torch.sub(x, z))", x, {0, -2, 0, -6});
  ExpectNear(z + "return torch.view_as_real(torch.add(z, 1, alpha=2))", x, {3, 2, 5, 6});
  ExpectNear(z + "return torch.view_as_real(torch.rsub(z, 1))", x, {0, -2, -2, -6});
  ExpectNear(z + "return torch.angle(torch.neg(z))", x, {-2.0344439F, -2.0344439F});
  ExpectNear("return torch.view_as_real(torch.polar(x, torch.zeros_like(x)))", x, {1, 0, 3, 0});
}

TEST_F(TorchComplex, AxesCountWithoutThatOfTheParts) {
  const std::string z = "z = torch.view_as_complex(torch.stack([x, torch.neg(x)], -1))\n";
  ExpectNear(z + "return torch.real(torch.transpose(z, -1, 0))", Plane(), {1, 3, 2, 4});
  ExpectNear(z + "return torch.imag(torch.view(z, [torch.size(z, -1), -1, 1]))", Plane(),
             {-1, -2, -3, -4});
  ExpectNear(z + "return torch.imag(torch.sum(z, [-1]))", Plane(), {-3, -7});
  ExpectNear(z + "return torch.imag(torch.cat([z, torch.slice(z, 0, 0, 1)], 0))", Plane(),
             {-1, -2, -3, -4, -1, -2});
  ExpectNear(z + "return torch.imag(torch.select(z, -1, 1))", Plane(), {-2, -4});
  // A size that only a run knows.
  const std::string code =
      Script(Forward("x: Tensor", z + "return torch.real(torch.view(z, [torch.size(z, 1), -1]))"));
  EXPECT_EQ(Run(code, {Plane()}, Shape("x", {2, -1})), (std::vector<Floats>{{1, 2, 3, 4}}));
}

// A rotation by tables, as in the attention of language models: x (i) with the table's numbers.
TEST_F(TorchComplex, Weights) {
  using namespace testing::pickle;  // NOLINT: a vocabulary
  const std::string storage = Tuple({Text("storage"), Global("torch", "ComplexFloatStorage"),
                                     Text("0"), Text("cpu"), Int(2)}) +
                              "Q";
  const std::string weight = Call(Global("torch._utils", "_rebuild_tensor_v2"),
                                  {storage, Int(0), Tuple({Int(2)}), Tuple({Int(1)}), Bool(false),
                                   Call(Global("collections", "OrderedDict"), {})});
  const std::string code =
      Forward("x: Tensor",
              "z = torch.view_as_complex(torch.view(x, [2, 2, 2]))\n"
              "return torch.flatten(torch.view_as_real(torch.mul(z, self.table)), 1)");
  const std::string file =
      Script(code, {{"table", weight}}, {{"m/data/0", testing::BytesOf({0, 1, 2, 0})}});
  EXPECT_EQ(Run(file, {Values({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}, Shape("x", {2, 4})),
            (std::vector<Floats>{{-2, 1, 6, 8, -6, 5, 14, 16}}));
}

// As with return_complex=False, which has the parts in an axis of their own.
TEST_F(TorchComplex, ShortTimeSpectra) {
  const std::string call = "torch.stft(x, 4, 2, 4, None, False, True, ";
  const Tensor x = Values({6}, {1, 2, 3, 4, 0, -1});
  const Floats right = Of("return " + call + "False)", x);
  EXPECT_EQ(right.size(), 12u);
  ExpectNear("return torch.view_as_real(" + call + "True))", x, right);
}

TEST_F(TorchComplex, SignalsOfShortTimeSpectra) {
  const Tensor x = Values({6}, {1, 2, 3, 4, 0, -1});
  const Floats signal = {1, 2, 3, 4, 0, -1};
  for (const char* norm : {"False", "True"}) {
    const std::string flags = std::string(norm) + ", True, ";
    const std::string body =
        "w = torch.slice(torch.abs(x), 0, 0, 4)\n"
        "z = torch.stft(x, 4, 2, 4, w, " +
        flags + "True)\n";
    ExpectNear(body + "return torch.istft(z, 4, 2, 4, w, False, " + flags + "None, False)", x,
               signal);
    ExpectNear(body + "return torch.istft(z, 4, 2, 4, w, True, " + flags + "None, False)", x,
               {3, 4});
    ExpectNear(body + "return torch.istft(z, 4, 2, 4, w, False, " + flags + "7, False)", x,
               {1, 2, 3, 4, 0, -1, 0});
  }
}

TEST_F(TorchComplex, WhatIsRefusedOfThem) {
  const std::string z = "z = torch.fft_rfft(x)\n";
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", z + "return z")),
              HasSubstr("output `output`: a complex tensor is an output"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", z + "return torch.abs(torch.erf(z))")),
              HasSubstr("aten::erf of complex numbers"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", z + "_0 = torch.mul_(z, 2)\nreturn torch.abs(z)")),
              HasSubstr("writes to a complex tensor"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", z + "if bool(torch.gt(torch.sum(x), 0)):\n"
                                                     "  y = z\n"
                                                     "else:\n"
                                                     "  y = torch.neg(z)\n"
                                                     "return torch.abs(y)")),
              HasSubstr("torch.view_as_real"));
}

}  // namespace
}  // namespace quench::importer::torch_complex_test
