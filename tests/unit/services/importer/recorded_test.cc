// Models that Keras and TensorFlow wrote, beside what they computed then.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/ops/evaluate.h"
#include "tests/support/onnx_models.h"
#include "tests/support/recorded_models.h"

namespace quench::importer::recorded_test {
namespace {

using testing::RecordedModel;

constexpr double kTolerance = 1e-5;

// RelativeError, but of numbers below 1 as a part of 1: what these come from has numbers around 1.
double Difference(const Tensor& ours, const Tensor& theirs) {
  double most = 1e-30;
  for (int64_t i = 0; i < theirs.size(); ++i) most = std::max(most, std::abs(theirs.FloatAt(i)));
  return RelativeError(ours, theirs) * std::min(1.0, most);
}

void ExpectAsRecorded(const RecordedModel& model, const std::string& name) {
  testing::ImportFolder folder;
  const std::filesystem::path path = testing::WriteRecordedModel(model, folder.path());
  ImportOptions options;
  for (const auto& [output, values] : model.outputs) {
    if (path.extension() == ".pb") options.outputs.push_back(output);
  }
  const auto imported = ImportModel(path, options, folder.store());
  ASSERT_TRUE(imported.ok()) << name << ": " << imported.status();
  const Graph& graph = imported->canonical;
  std::vector<Tensor> given;
  for (const ValueId id : graph.inputs) {
    const auto found = model.inputs.find(graph.value(id).name);
    ASSERT_TRUE(found != model.inputs.end()) << name << ": " << graph.value(id).name;
    given.push_back(found->second);
  }
  const auto results = ops::Evaluate(graph, given);
  ASSERT_TRUE(results.ok()) << name << ": " << results.status();
  ASSERT_EQ(results->size(), model.outputs.size()) << name;
  for (size_t i = 0; i < results->size(); ++i) {
    // Keras' outputs are numbered.
    const auto called = [&](const std::string& output) {
      return std::ranges::find(model.outputs, output, [](const auto& o) { return o.first; });
    };
    auto wanted = called(graph.value(graph.outputs[i]).name);
    if (wanted == model.outputs.end()) wanted = called(std::to_string(i));
    ASSERT_TRUE(wanted != model.outputs.end()) << name << ": output " << i;
    EXPECT_LE(Difference((*results)[i], wanted->second), kTolerance) << name << ": output " << i;
  }
}

class Recorded : public ::testing::TestWithParam<const char*> {};

TEST_P(Recorded, ModelsComputeWhatTheirFrameworkDid) {
  size_t models = 0;
  const std::filesystem::path cases =
      std::filesystem::path(QUENCH_SOURCE_DIR) / "tests" / "cases" / GetParam();
  for (const auto& entry : std::filesystem::directory_iterator(cases)) {
    for (const auto& [name, model] : testing::ReadRecordedModels(entry.path())) {
      ++models;
      ExpectAsRecorded(model, entry.path().stem().string() + "/" + name);
    }
  }
  EXPECT_GE(models, 100U);
}

INSTANTIATE_TEST_SUITE_P(Frameworks, Recorded, ::testing::Values("keras", "tensorflow"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
}  // namespace quench::importer::recorded_test
