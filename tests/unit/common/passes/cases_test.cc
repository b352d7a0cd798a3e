// tests/cases/passes/NAME.ir.txt: "# pass: PASS", "# batch: N" if it matters ("# f16: NODE NODE" are
// PassOptions::node_types), a module, a line
// "---", and the module after the pass. The text must be what the pass gives, and both modules must
// compute the same (1e-5). QUENCH_UPDATE_GOLDENS=1 rewrites the second module.
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"
#include "common/ir/text.h"
#include "common/ops/evaluate.h"
#include "common/ops/op.h"
#include "common/passes/pass.h"
#include "tests/support/graphs.h"

namespace quench::passes::cases_test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDivider = "---\n";

// The text after "# KEY: " on its line, "" if there is none.
std::string Setting(const std::string& text, const std::string& key) {
  const std::string mark = "# " + key + ": ";
  const size_t at = text.find(mark);
  if (at == std::string::npos) return "";
  const size_t begin = at + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

// Evaluates both on inputs that the second takes: a pass may fix sizes.
double DifferenceOf(const Graph& before, const Graph& after) {
  const std::vector<Tensor> inputs = testing::RandomInputsFor(after, 1);
  const auto expected = ops::Evaluate(before, inputs), actual = ops::Evaluate(after, inputs);
  EXPECT_TRUE(expected.ok()) << expected.status();
  EXPECT_TRUE(actual.ok()) << actual.status();
  if (!expected.ok() || !actual.ok() || expected->size() != actual->size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < expected->size(); ++i)
    worst = std::max(worst, RelativeError((*actual)[i], (*expected)[i]));
  return worst;
}

void RunCase(const fs::path& path) {
  const std::string text = *ReadFile(path);
  const size_t divider = text.find(kDivider);
  ASSERT_NE(divider, std::string::npos) << "no line `---`";
  const PassInfo* pass = FindPass(Setting(text, "pass"));
  ASSERT_NE(pass, nullptr) << "no pass `" << Setting(text, "pass") << "`";
  absl::StatusOr<Graph> before = ParseGraph(text.substr(0, divider));
  ASSERT_TRUE(before.ok()) << before.status();
  const absl::Status inferred = ops::InferGraph(*before);
  ASSERT_TRUE(inferred.ok()) << inferred;
  PassOptions options;
  options.batch = std::atoll(Setting(text, "batch").c_str());
  if (Setting(text, "float16") == "1") options.store_as = DataType::kF16;
  if (Setting(text, "bfloat16") == "1") options.store_as = DataType::kBF16;
  for (const char* type : {"f32", "f16", "bf16"}) {
    const std::vector<std::string> nodes =
        absl::StrSplit(Setting(text, type), ' ', absl::SkipEmpty());
    for (const std::string& node : nodes) options.node_types[node] = *ParseDataType(type);
  }
  if (Setting(text, "unsigned") == "1") options.activation_bytes = DataType::kU8;
  if (Setting(text, "unsigned") == "0") options.activation_bytes = DataType::kI8;
  const absl::StatusOr<Graph> after = RunPass(*pass, *before, options, {});
  ASSERT_TRUE(after.ok()) << after.status();
  const bool narrowest = options.store_as == DataType::kBF16 || !Setting(text, "bf16").empty();
  const bool narrow = options.store_as == DataType::kF16 || !Setting(text, "f16").empty();
  EXPECT_LE(DifferenceOf(*before, *after), narrowest ? 2e-2 : narrow ? 2e-3 : 1e-5);
  const std::string printed = PrintGraph(*after);
  if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr) {
    const std::string updated = text.substr(0, divider) + std::string(kDivider) + printed;
    ASSERT_TRUE(WriteFileAtomically(path, updated).ok());
    return;
  }
  EXPECT_EQ(text.substr(divider + kDivider.size()), printed);
}

TEST(PassCasesTest, TextAndNumbers) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(QUENCH_PASS_CASES)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> without;
  for (const PassInfo& pass : AllPasses()) without.emplace_back(pass.name);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.filename());
    RunCase(path);
    std::erase(without, Setting(*ReadFile(path), "pass"));
  }
  EXPECT_EQ(without, std::vector<std::string>{}) << "passes without a case";
}

}  // namespace
}  // namespace quench::passes::cases_test
