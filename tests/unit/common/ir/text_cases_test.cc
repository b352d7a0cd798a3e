// tests/cases/ir: NAME.ir.txt prints back to itself and has the identities that its comments give;
// fail_NAME.ir.txt gives the error of its first line. QUENCH_UPDATE_GOLDENS=1 rewrites the
// comments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ir/wire/wire.h"

namespace quench::text_cases_test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> Cases(const std::string& extension) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(QUENCH_IR_CASES)) {
    if (entry.path().string().ends_with(extension)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// "# error: ..." or the identities, as the file ought to begin; the lines are part of the line
// numbers in errors.
std::string Expectation(const std::string& text) {
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  if (!graph.ok()) return "# error: " + MessageOf(graph.status()) + "\n";
  return "# fingerprint: " + Fingerprint(*graph) + "\n# structure: " + StructureHash(*graph) + "\n";
}

TEST(TextCasesTest, TextAndIdentities) {
  const std::vector<fs::path> cases = Cases(".ir.txt");
  ASSERT_GE(cases.size(), 10u);
  for (const fs::path& path : cases) {
    SCOPED_TRACE(path.filename());
    const std::string contents = *ReadFile(path);
    const size_t body = contents.find("quench.ir ");
    ASSERT_NE(body, std::string::npos);
    const std::string expectation = Expectation(contents);
    if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr) {
      ASSERT_TRUE(WriteFileAtomically(path, expectation + contents.substr(body)).ok());
      continue;
    }
    EXPECT_EQ(contents.substr(0, body), expectation);
    const absl::StatusOr<Graph> graph = ParseGraph(contents);
    EXPECT_EQ(path.filename().string().starts_with("fail_"), !graph.ok());
    if (!graph.ok()) continue;
    EXPECT_EQ(PrintGraph(*graph), contents.substr(body));
    EXPECT_EQ(VerifyGraph(*graph), absl::OkStatus());
  }
}

// Modules written by earlier versions stay readable: NAME.module was serialised from NAME.ir.txt
// when it was added.
TEST(WireCasesTest, OldModulesStayReadable) {
  const auto folder = TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const auto store = LocalBlobStore::Open(folder->path());
  ASSERT_TRUE(store.ok());
  for (const fs::path& text : Cases(".ir.txt")) {
    if (text.filename().string().starts_with("fail_")) continue;
    SCOPED_TRACE(text.filename());
    const absl::StatusOr<Graph> graph = ParseGraph(*ReadFile(text));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const fs::path module = fs::path(text).replace_extension().replace_extension(".module");
    if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr && !fs::exists(module)) {
      ASSERT_TRUE(WriteFileAtomically(module, *SerializeModule(*graph, **store)).ok());
    }
    const absl::StatusOr<std::string> bytes = ReadFile(module);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<Graph> read = ParseModule(*bytes, **store);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FirstDifference(*graph, *read), "");
    EXPECT_EQ(Fingerprint(*graph), Fingerprint(*read));
  }
}

}  // namespace
}  // namespace quench::text_cases_test
