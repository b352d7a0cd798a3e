#include "tests/conformance/case.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/ops/evaluate.h"
#include "common/runner/runner.h"
#include "services/codegen/codegen.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/model_file.h"
#include "services/importer/onnx/tensor_file.h"

namespace quench::conformance {
namespace {

constexpr double kRelative = 1e-3;
constexpr double kAbsolute = 1e-7;

struct DataSet {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

absl::StatusOr<std::vector<Tensor>> ReadTensors(const std::filesystem::path& folder,
                                                const std::string& prefix) {
  std::vector<Tensor> tensors;
  for (int i = 0;; ++i) {
    const std::filesystem::path path = folder / fmt::format("{}_{}.pb", prefix, i);
    if (!std::filesystem::exists(path)) return tensors;
    QUENCH_ASSIGN_OR_RETURN(Tensor tensor, importer::ReadTensorProto(path));
    tensors.push_back(std::move(tensor));
  }
}

absl::StatusOr<std::vector<DataSet>> ReadDataSets(const std::filesystem::path& folder) {
  std::vector<DataSet> sets;
  for (int i = 0;; ++i) {
    const std::filesystem::path path = folder / fmt::format("test_data_set_{}", i);
    if (!std::filesystem::exists(path)) break;
    DataSet set;
    QUENCH_ASSIGN_OR_RETURN(set.inputs, ReadTensors(path, "input"));
    QUENCH_ASSIGN_OR_RETURN(set.outputs, ReadTensors(path, "output"));
    sets.push_back(std::move(set));
  }
  if (sets.empty()) return absl::NotFoundError("no test data");
  return sets;
}

bool Close(double actual, double expected, double absolute) {
  if (std::isnan(actual) || std::isnan(expected)) return std::isnan(actual) == std::isnan(expected);
  if (std::isinf(actual) || std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= absolute + kRelative * std::abs(expected);
}

// The error that an element of `expected` may have, however small it is itself.
double AbsoluteTolerance(const Tensor& expected, double of_largest) {
  if (of_largest == 0 || !IsFloat(expected.dtype())) return kAbsolute;
  double largest = 0;
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double magnitude = std::abs(expected.FloatAt(i));
    if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
  }
  return std::max(kAbsolute, of_largest * largest);
}

absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, size_t index,
                            double of_largest) {
  const std::string where = fmt::format("output {}", index);
  if (actual.dtype() != expected.dtype() || actual.dims() != expected.dims()) {
    return InvalidArgument("{} is {}[{}], expected {}[{}]", where, DataTypeName(actual.dtype()),
                           fmt::join(actual.dims(), ", "), DataTypeName(expected.dtype()),
                           fmt::join(expected.dims(), ", "));
  }
  if (actual.dtype() == DataType::kString) {
    if (actual.strings() == expected.strings()) return absl::OkStatus();
    return InvalidArgument("{} has other strings than expected", where);
  }
  if (IsComplex(actual.dtype())) {
    const auto same =
        std::equal(actual.bytes().begin(), actual.bytes().end(), expected.bytes().begin());
    return same ? absl::OkStatus() : InvalidArgument("{} differs", where);
  }
  const double absolute = AbsoluteTolerance(expected, of_largest);
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (Close(actual.FloatAt(i), expected.FloatAt(i), absolute)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return absl::OkStatus();
  return InvalidArgument("{} differs in {} of {} elements, at {} it is {:.6g} rather than {:.6g}",
                         where, wrong, expected.size(), first, actual.FloatAt(first),
                         expected.FloatAt(first));
}

absl::Status CompareAll(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
                        double of_largest) {
  if (actual.size() != expected.size()) {
    return InvalidArgument("{} outputs, expected {}", actual.size(), expected.size());
  }
  for (size_t i = 0; i < actual.size(); ++i)
    QUENCH_RETURN_IF_ERROR(CompareTensors(actual[i], expected[i], i, of_largest));
  return absl::OkStatus();
}

// kPass, or kWrong with what is wrong first. `where` leads the reason, unless it is empty.
Outcome Judge(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected,
              double of_largest, const std::string& where) {
  const absl::Status same = CompareAll(actual, expected, of_largest);
  if (same.ok()) return {};
  const std::string text = MessageOf(same);
  return Outcome::Of(Kind::kWrong, where.empty() ? text : where + ": " + text);
}

Outcome RunInterpreted(const Graph& graph, const std::vector<DataSet>& sets, double of_largest) {
  for (const DataSet& set : sets) {
    const absl::StatusOr<std::vector<Tensor>> actual = ops::Evaluate(graph, set.inputs);
    if (!actual.ok()) return Outcome::Of(actual.status());
    const Outcome outcome = Judge(*actual, set.outputs, of_largest, "");
    if (outcome.kind != Kind::kPass) return outcome;
  }
  return {};
}

Outcome RunCompiled(const Graph& graph, const std::vector<DataSet>& sets, int level,
                    const CaseOptions& settings) {
  codegen::CompileOptions options;
  options.opt_level = level;
  const std::filesystem::path library = settings.scratch / fmt::format("case{}.so", level);
  const std::filesystem::path header = settings.scratch / fmt::format("case{}.h", level);
  absl::StatusOr<codegen::CompileReport> report = codegen::Compile(graph, options, library, header);
  if (!report.ok())
    return Outcome::Of(Annotate(report.status(), fmt::format("compile at level {}", level)));
  absl::StatusOr<std::unique_ptr<Artifact>> artifact = Artifact::Open(library);
  if (!artifact.ok()) return Outcome::Of(Annotate(artifact.status(), "open"));
  for (const DataSet& set : sets) {
    absl::StatusOr<std::vector<Tensor>> actual = (*artifact)->Run(set.inputs);
    if (!actual.ok())
      return Outcome::Of(Annotate(actual.status(), fmt::format("run at level {}", level)));
    const Outcome outcome =
        Judge(*actual, set.outputs, settings.of_largest, fmt::format("level {}", level));
    if (outcome.kind != Kind::kPass) return outcome;
  }
  return {};
}

// Debian's cases keep bf16 as the u16 of the same bits.
void RestoreBfloat16(const Graph& graph, std::vector<DataSet>& sets) {
  const auto restore = [&](const std::vector<ValueId>& ids, std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < std::min(ids.size(), tensors.size()); ++i) {
      const bool wanted = graph.value(ids[i]).type.dtype == DataType::kBF16;
      if (!wanted || tensors[i].dtype() != DataType::kU16) continue;
      tensors[i] = Tensor::Of(DataType::kBF16, tensors[i].dims(),
                              std::vector<uint16_t>(tensors[i].as<uint16_t>().begin(),
                                                    tensors[i].as<uint16_t>().end()));
    }
  };
  for (DataSet& set : sets) {
    restore(graph.inputs, set.inputs);
    restore(graph.outputs, set.outputs);
  }
}

// Axes, sizes and the like are inputs in the cases, and Quench wants to know most of them when it
// imports: small integer inputs then become constants, with the values of the first data set.
importer::ImportOptions FreezeIntegers(const onnx::v1::ModelProto& model, DataSet& set) {
  importer::ImportOptions options;
  std::vector<Tensor> rest;
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    const Tensor& tensor = set.inputs[i];
    const bool index = tensor.dtype() == DataType::kI64 || tensor.dtype() == DataType::kI32;
    if (i > 0 && index && tensor.rank() <= 1 && static_cast<int>(i) < model.graph().input_size()) {
      options.freeze_params[model.graph().input(static_cast<int>(i)).name()] = tensor;
    } else {
      rest.push_back(tensor);
    }
  }
  set.inputs = std::move(rest);
  return options;
}

}  // namespace

CaseResult RunCase(const std::filesystem::path& folder, const CaseOptions& options) {
  const auto both = [](const absl::Status& status) {
    return CaseResult{Outcome::Of(status), Outcome::Of(status)};
  };
  absl::StatusOr<std::shared_ptr<LocalBlobStore>> store = LocalBlobStore::Open(options.scratch);
  if (!store.ok()) return both(store.status());
  const std::filesystem::path file = folder / "model.onnx";
  absl::StatusOr<importer::Imported> model = importer::ImportModel(file, {}, **store);
  absl::StatusOr<std::vector<DataSet>> sets = ReadDataSets(folder);
  if (!model.ok() && sets.ok() && sets->size() == 1) {
    const absl::StatusOr<importer::ModelFile> proto = importer::OpenModelFile(file);
    std::vector<DataSet> rest = *sets;
    importer::ImportOptions frozen;
    if (proto.ok()) frozen = FreezeIntegers(proto->proto, rest[0]);
    if (!frozen.freeze_params.empty()) {
      absl::StatusOr<importer::Imported> again = importer::ImportModel(file, frozen, **store);
      if (again.ok()) {
        model = std::move(again);
        sets = std::move(rest);
      }
    }
  }
  if (!model.ok()) return both(Annotate(model.status(), "import"));
  if (!sets.ok()) return both(Annotate(sets.status(), "test data"));
  RestoreBfloat16(model->canonical, *sets);
  CaseResult result;
  result.interpreted = RunInterpreted(model->canonical, *sets, options.of_largest);
  if (!options.compile) return result;
  for (const int level : {0, 3}) {
    result.compiled = RunCompiled(model->canonical, *sets, level, options);
    if (result.compiled.kind != Kind::kPass) break;
  }
  return result;
}

}  // namespace quench::conformance
