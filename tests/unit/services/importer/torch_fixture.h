// Helpers for tests of PyTorch's files: archives are written, imported and run.
#pragma once

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/states.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ops/evaluate.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"
#include "tests/support/torch_files.h"

namespace quench::importer {

using Floats = std::vector<float>;
using Fields = std::vector<std::pair<std::string, std::string>>;

inline Tensor Values(std::vector<int64_t> dims, const Floats& values) {
  return testing::F32(std::move(dims), values);
}

class TorchTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "model.pt"; }

  absl::StatusOr<Imported> ImportFile(const std::string& bytes, const ImportOptions& options) {
    folder_.Write("model.pt", bytes);
    return ImportModel(path(), options, folder_.store());
  }
  static std::string Script(const std::string& code, const Fields& attributes = {},
                            const std::vector<testing::ZipEntry>& more = {}) {
    std::vector<testing::ZipEntry> entries = {
        {"m/data.pkl",
         testing::pickle::File(testing::pickle::Object("__torch__", "M", attributes))},
        {"m/constants.pkl", testing::pickle::File(testing::pickle::Tuple({}))},
        {"m/code/__torch__.py", code},
        {"m/version", "3\n"}};
    entries.insert(entries.end(), more.begin(), more.end());
    return testing::ZipOf(entries);
  }
  static std::string Forward(const std::string& arguments, const std::string& body) {
    std::string code =
        "class M(Module):\n  def forward(self: __torch__.M,\n    " + arguments + ") -> Tensor:\n";
    for (size_t at = 0; at < body.size();) {
      const size_t end = std::min(body.find('\n', at), body.size());
      code += "    " + body.substr(at, end - at) + "\n";
      at = end + 1;
    }
    return code;
  }
  std::vector<Floats> Run(const std::string& bytes, const std::vector<Tensor>& inputs,
                          const ImportOptions& options = {}) {
    const absl::StatusOr<Imported> imported = ImportFile(bytes, options);
    EXPECT_TRUE(imported.ok()) << imported.status();
    if (!imported.ok()) return {};
    EXPECT_TRUE(VerifyGraph(imported->imported).ok()) << VerifyGraph(imported->imported);
    // The imported stage prints and parses.
    const auto parsed = ParseGraph(PrintGraph(imported->imported), ConstantLoader());
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    const auto outputs = ops::Evaluate(imported->canonical, inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    std::vector<Floats> all;
    for (size_t i = 0; outputs.ok() && i < outputs->size(); ++i) {
      Floats values;
      for (int64_t k = 0; k < (*outputs)[i].size(); ++k)
        values.push_back(static_cast<float>((*outputs)[i].FloatAt(k)));
      all.push_back(values);
    }
    return all;
  }
  std::string ErrorOfScript(const std::string& code, const Fields& attributes = {}) {
    ImportOptions options;
    options.shapes["x"] = {2, 3};
    return testing::ErrorOf(ImportFile(Script(code, attributes), options).status());
  }
  static ImportOptions Shape(const std::string& input, std::vector<int64_t> dims) {
    ImportOptions options;
    options.shapes[input] = std::move(dims);
    return options;
  }

  testing::ImportFolder folder_;
};

}  // namespace quench::importer
