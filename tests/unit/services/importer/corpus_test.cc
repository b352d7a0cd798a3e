// Every model of the test corpus goes through the importer: it imports, or says why not.
// Nothing crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "common/base/status.h"
#include "common/ir/verify.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer {
namespace {

std::filesystem::path CorpusRoot() {
  const char* root = std::getenv("QUENCH_CORPUS");
  return root != nullptr ? root : QUENCH_DEFAULT_CORPUS;
}

TEST(Corpus, EveryModelImportsOrSaysWhyNot) {
  const std::filesystem::path root = CorpusRoot();
  if (!std::filesystem::is_directory(root)) GTEST_SKIP() << "corpus absent: 0 models imported";
  std::vector<std::filesystem::path> models;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    // The node cases are the conformance harness's.
    const std::string extension = entry.path().extension();
    const auto is_in = [path = entry.path().string()](const char* folder) {
      return path.find(folder) != std::string::npos;
    };
    const bool is_graph = extension == ".pb" && !is_in("test_data") && !is_in("/testdata/");
    if ((extension == ".onnx" || extension == ".tflite" || is_graph) && !is_in("/node/")) {
      models.push_back(entry.path());
    }
  }
  std::sort(models.begin(), models.end());
  testing::ImportFolder folder;
  int imported = 0;
  for (const std::filesystem::path& path : models) {
    const auto result = ImportModel(path, {}, folder.store());
    if (!result.ok()) {
      EXPECT_NE(MessageOf(result.status()), "") << path;
      EXPECT_NE(result.status().code(), absl::StatusCode::kInternal)
          << path << MessageOf(result.status());
      std::cout << std::filesystem::relative(path, root).string() << ": "
                << MessageOf(result.status()) << "\n";
      continue;
    }
    ++imported;
    EXPECT_TRUE(VerifyGraph(result->imported).ok())
        << path << MessageOf(VerifyGraph(result->imported));
    EXPECT_TRUE(VerifyGraph(result->canonical).ok())
        << path << MessageOf(VerifyGraph(result->canonical));
  }
  std::cout << imported << " of " << models.size() << " models import\n";
  EXPECT_GT(imported, 0);
}

}  // namespace
}  // namespace quench::importer
