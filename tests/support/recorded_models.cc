#include "tests/support/recorded_models.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/ir/npy.h"
#include "common/ir/zip_archive.h"

namespace quench::testing {
namespace {

void AddFile(const std::string& file, const std::string& bytes, RecordedModel& model) {
  if (file.starts_with("model")) {
    model.files[file] = bytes;
    return;
  }
  const auto tensor = ParseNpy(bytes, file);
  ASSERT_TRUE(tensor.ok()) << file << tensor.status();
  const bool is_input = file.starts_with("in.");
  const size_t begin = file.find('.') + 1, end = file.size() - std::string_view(".npy").size();
  const std::string name = file.substr(begin, end - begin);
  if (is_input)
    model.inputs[name] = *tensor;
  else
    model.outputs.emplace_back(name, *tensor);
}

}  // namespace

std::map<std::string, RecordedModel> ReadRecordedModels(const std::filesystem::path& path) {
  std::map<std::string, RecordedModel> models;
  const auto archive = ZipArchive::Open(path);
  EXPECT_TRUE(archive.ok()) << path << archive.status();
  if (!archive.ok()) return models;
  for (size_t i = 0; i < (*archive)->members().size(); ++i) {
    const std::string name = (*archive)->members()[i].name;
    const auto bytes = (*archive)->Read(i);
    EXPECT_TRUE(bytes.ok()) << path << name << bytes.status();
    const size_t slash = name.find('/');
    if (bytes.ok()) AddFile(name.substr(slash + 1), *bytes, models[name.substr(0, slash)]);
  }
  return models;
}

std::filesystem::path WriteRecordedModel(const RecordedModel& model,
                                         const std::filesystem::path& folder) {
  for (const auto& [name, bytes] : model.files) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  const std::string first = model.files.empty() ? "model" : model.files.begin()->first;
  return folder / first.substr(0, first.find('/'));
}

}  // namespace quench::testing
