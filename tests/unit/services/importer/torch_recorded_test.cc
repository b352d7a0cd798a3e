// Small files that PyTorch wrote, of several versions, and what it computed with them: tests/peers/torch_recorded.py.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_recorded_test {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-5;

Tensor TensorOf(const Json& json) {
  const auto dims = json["shape"].get<std::vector<int64_t>>();
  const Json& values = json["values"];
  if (json["dtype"] == "i64")
    return Tensor::Of(DataType::kI64, dims, values.get<std::vector<int64_t>>());
  EXPECT_EQ(json["dtype"], "f32");
  return testing::F32(dims, values.get<Floats>());
}

std::vector<std::filesystem::path> RecordedCases() {
  std::vector<std::filesystem::path> cases;
  const std::filesystem::path folder =
      std::filesystem::path(QUENCH_SOURCE_DIR) / "tests/cases/torch";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

class TorchRecordedTest : public TorchTest,
                          public ::testing::WithParamInterface<std::filesystem::path> {};

TEST_P(TorchRecordedTest, ComputesWhatPyTorchDid) {
  const Json recorded = Json::parse(std::ifstream(GetParam()));
  ImportOptions options;
  std::vector<Tensor> inputs;
  for (const Json& input : recorded["inputs"]) {
    inputs.push_back(TensorOf(input));
    if (!recorded["typed"].get<bool>()) {
      options.shapes[input["name"]] = inputs.back().dims();
      options.dtypes[input["name"]] = inputs.back().dtype();
    }
  }
  const auto imported = ImportModel(GetParam().parent_path() / recorded["file"].get<std::string>(),
                                    options, folder_.store());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const Graph& graph = imported->canonical;
  for (size_t i = inputs.size(); i < graph.inputs.size(); ++i) {  // states begin with zeros
    const Type& type = graph.value(graph.inputs[i]).type;
    std::vector<int64_t> dims;
    for (const Dim dim : type.dims) dims.push_back(dim.value());
    inputs.push_back(Tensor::Zeros(type.dtype, dims));
  }
  const auto outputs = ops::Evaluate(graph, inputs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  const Json& wanted = recorded["outputs"];
  ASSERT_GE(outputs->size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Tensor expected = TensorOf(wanted[i]);
    const Tensor& got = (*outputs)[i];
    ASSERT_EQ(got.dims(), expected.dims()) << "output " << i;
    for (int64_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got.FloatAt(k), expected.FloatAt(k),
                  kTolerance * std::max(1.0, std::abs(expected.FloatAt(k))))
          << "output " << i << " at " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TorchRecordedTest, ::testing::ValuesIn(RecordedCases()),
                         [](const auto& recorded) {
                           std::string name = recorded.param.stem().string();
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace quench::importer::torch_recorded_test
