// Every model of the test corpus goes through the importer: it imports, or says why not.
// Nothing crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/verify.h"
#include "common/ir/zip_archive.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::importer::corpus_test {
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
    const std::set<std::string> kinds = {".jit", ".onnx", ".pt", ".ptl", ".tflite"};
    if ((kinds.contains(extension) || is_graph) && !is_in("/node/")) {
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

// TorchScript of others, beside what PyTorch made of the same input.
TEST(Corpus, TorchScriptIsWhatPyTorchComputes) {
  const std::filesystem::path root = CorpusRoot();
  if (!std::filesystem::is_directory(root)) GTEST_SKIP() << "corpus absent: 0 models compared";
  const std::map<std::string, std::string> inputs = {
      {"snakers4__silero-vad/files/model_micro.jit", "x"},
      {"snakers4__silero-vad/files/model_mini.jit", "x"},
      {"nnstreamer__nnstreamer/tests/test_models/models/pytorch_lenet5.pt", "val"},
      {"derived__torchscript/resnet20_cifar10_trace.pt", "x"},
      {"apple__coremltools/coremltools/converters/torch/test/testdata/DemoNet.pt", "input"},
      {"pytorch__android-demo-app/ASLRecognition/app/src/main/assets/asl.ptl", "x"}};
  testing::ImportFolder folder;
  for (const auto& [file, input] : inputs) {
    const auto archive = ZipArchive::Open(root / (file + ".ref.npz"));
    ASSERT_TRUE(archive.ok()) << archive.status();
    std::map<std::string, Tensor> reference;
    for (size_t i = 0; i < (*archive)->members().size(); ++i) {
      const std::string name = (*archive)->members()[i].name;
      if (name.starts_with("producer")) continue;  // a text
      const auto bytes = (*archive)->Read(i);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const auto tensor = ParseNpy(*bytes, name);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      reference[name.substr(0, name.find('.'))] = *tensor;
    }
    ImportOptions options;
    options.shapes[input] = reference.at("in0").dims();
    options.dtypes[input] = reference.at("in0").dtype();
    const auto imported = ImportModel(root / file, options, folder.store());
    ASSERT_TRUE(imported.ok()) << file << ": " << imported.status();
    const auto outputs =
        ops::Evaluate(imported->canonical, std::vector<Tensor>{reference.at("in0")});
    ASSERT_TRUE(outputs.ok()) << file << ": " << outputs.status();
    EXPECT_LE(RelativeError(outputs->at(0), reference.at("out0")), 1e-4) << file;
  }
}

}  // namespace
}  // namespace quench::importer::corpus_test
