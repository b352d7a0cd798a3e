// tests/cases/programs/NAME.txt: "# run: form bands, assign memory, verify", "# target: T" (x86-64-v3 if not
// given), "# weights: N" (entries, 0 if not given), a program, a line "---", and what comes of it: the program
// after all of these, or the first error. QUENCH_UPDATE_GOLDENS=1 rewrites that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/plan/assign.h"
#include "services/codegen/plan/bands.h"
#include "services/codegen/plan/place.h"
#include "services/codegen/plan/program_parse.h"
#include "services/codegen/plan/program_text.h"
#include "services/codegen/plan/program_verify.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen::program_cases_test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDivider = "---\n";

// The text after "# KEY: " on its line, `usual` if there is none.
std::string Setting(const std::string& text, const std::string& key, const std::string& usual) {
  const std::string mark = "# " + key + ": ";
  const size_t at = text.find(mark);
  if (at == std::string::npos) return usual;
  const size_t begin = at + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

struct Case {
  Program program;
  SymbolTable symbols;
  Target target;
  size_t weights = 0;
};

// Everything may run on the GPU but what is called `host...`.
absl::Status Place(Case& c) {
  ForEachStep(c.program.steps, [](Step& step) {
    auto* call = step.As<CallStep>();
    if (call != nullptr && !call->kernel.name.starts_with("host"))
      call->device_kernel = call->kernel;
  });
  std::vector<KernelReport> kernels(c.program.nodes.size());
  PlaceOnDevice(c.program, kernels, c.symbols, /*all=*/true);
  return absl::OkStatus();
}

absl::Status Run(const std::string& step, Case& c) {
  if (step == "assign memory") return AssignMemory(c.program, c.symbols, c.target);
  if (step == "verify") return VerifyProgram(c.program, c.weights);
  if (step == "place") return Place(c);
  if (step != "form bands") return InvalidArgument("nothing is called `{}`", step);
  std::vector<KernelReport> kernels(c.program.nodes.size());
  FormBands(c.program, kernels, c.target);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResultOf(const std::string& text) {
  Case c;
  c.target = ResolveTarget(Setting(text, "target", "x86-64-v3")).value()[0];
  c.weights = static_cast<size_t>(std::atoll(Setting(text, "weights", "0").c_str()));
  QUENCH_ASSIGN_OR_RETURN(c.program, ParseProgram(text, c.symbols));
  const std::string run = Setting(text, "run", "");
  for (size_t at = 0; at < run.size();) {
    const size_t end = std::min(run.find(", ", at), run.size());
    QUENCH_RETURN_IF_ERROR(Run(run.substr(at, end - at), c));
    at = end + 2;
  }
  return ProgramText(c.program, c.symbols);
}

TEST(ProgramCasesTest, ProgramsAfterTheirSteps) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(QUENCH_PROGRAM_CASES))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  EXPECT_GE(paths.size(), 10u);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.filename());
    const std::string text = *ReadFile(path);
    const size_t divider = text.find(kDivider);
    ASSERT_NE(divider, std::string::npos) << "no line `---`";
    const absl::StatusOr<std::string> result = ResultOf(text.substr(0, divider));
    const std::string shown = result.ok() ? *result : "error: " + MessageOf(result.status()) + "\n";
    EXPECT_EQ(path.filename().string().starts_with("fail_"), !result.ok());
    if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr) {
      const std::string updated = text.substr(0, divider) + std::string(kDivider) + shown;
      ASSERT_TRUE(WriteFileAtomically(path, updated).ok());
    } else {
      EXPECT_EQ(text.substr(divider + kDivider.size()), shown);
    }
  }
}

}  // namespace
}  // namespace quench::codegen::program_cases_test
