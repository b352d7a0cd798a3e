// Models that a framework wrote, with what it computed: archives in tests/cases/keras and tests/cases/tensorflow, which
// `--record` of tests/peers/keras_models and tensorflow_models writes.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/ir/tensor.h"

namespace quench::testing {

struct RecordedModel {
  // By path: "model.h5" alone, or the files of a folder "model/".
  std::map<std::string, std::string> files;
  std::map<std::string, Tensor> inputs;
  std::vector<std::pair<std::string, Tensor>> outputs;  // "result_0", or "0" where it has no name
};

// The models of an archive by their names in it; a test failure, and none, where it cannot be read.
std::map<std::string, RecordedModel> ReadRecordedModels(const std::filesystem::path& archive);

// Writes the model beneath `folder`; the path of its file or folder.
std::filesystem::path WriteRecordedModel(const RecordedModel& model,
                                         const std::filesystem::path& folder);

}  // namespace quench::testing
