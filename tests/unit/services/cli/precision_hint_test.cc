#include "services/cli/precision_hint.h"

#include <gtest/gtest.h>

#include "services/codegen/targets/resolve.h"

namespace quench::cli::precision_hint_test {
namespace {

std::string HintFor(const std::string& target, double f32, double bf16) {
  codegen::CompileReport report;
  for (const auto& [dtype, multiplications] : {std::pair("f32", f32), {"bf16", bf16}}) {
    report.kernels.emplace_back();
    report.kernels.back().dtype = dtype;
    report.kernels.back().multiplications = multiplications;
  }
  return PrecisionHint(codegen::ResolveTarget(target).value()[0], report);
}

TEST(PrecisionHint, NamesWhatIsFaster) {
  EXPECT_NE(HintFor("x86-64-v4-amx", 3e7, 1e6).find("--bfloat16"), std::string::npos);
  EXPECT_EQ(HintFor("x86-64-v4-amx", 1e6, 3e7), "");
  EXPECT_EQ(HintFor("x86-64-v4-amx", 1e6, 0), "");  // a small model
  EXPECT_EQ(HintFor("x86-64-v4-fp16", 3e7, 0), "");
  EXPECT_NE(HintFor("x86-64-v4-fp16", 0, 3e7).find("widened"), std::string::npos);
  EXPECT_EQ(HintFor("x86-64-v4-bf16", 0, 3e7), "");
}

}  // namespace
}  // namespace quench::cli::precision_hint_test
