#include "services/cli/model_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/symbols_spelling.h"
#include "common/ir/text.h"
#include "common/ir/wire/wire.h"
#include "services/cli/colour.h"
#include "services/cli/local_store.h"
#include "services/cli/module_files.h"
#include "services/importer/onnx/tensor_file.h"

namespace quench::cli {
namespace {

constexpr size_t kMaxConversionBytes = size_t{1} << 20;
constexpr size_t kMaxArchitectureBytes = size_t{64} << 20;

absl::StatusOr<int64_t> ParseInt(const std::string& option, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("{}: `{}` is not an integer", option, text);
  }
  return value;
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& option,
                                                const std::string& text) {
  std::vector<int64_t> dims;
  if (text == "scalar" || text == "[]") return dims;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view part = std::string_view(text).substr(start, comma - start);
    if (part == "?" || part == "-1") {
      dims.push_back(-1);
    } else {
      QUENCH_ASSIGN_OR_RETURN(const int64_t dim, ParseInt(option, part));
      if (dim < 0)
        return InvalidArgument("{}: dim {} is negative; use -1 or ? to keep a dim", option, dim);
      dims.push_back(dim);
    }
    start = comma + 1;
  }
  return dims;
}

absl::StatusOr<std::pair<int64_t, int64_t>> ParseRange(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots != std::string::npos && (dots == 0 || dots + 2 == text.size()))
    return InvalidArgument("--size: `{}` is not a range LOW..HIGH: both ends are needed", text);
  if (dots == std::string::npos) {
    QUENCH_ASSIGN_OR_RETURN(const int64_t value, ParseInt("--size", text));
    return std::pair{value, value};
  }
  QUENCH_ASSIGN_OR_RETURN(const int64_t low,
                          ParseInt("--size", std::string_view(text).substr(0, dots)));
  QUENCH_ASSIGN_OR_RETURN(const int64_t high,
                          ParseInt("--size", std::string_view(text).substr(dots + 2)));
  if (low < 0 || high < low)
    return InvalidArgument("--size: `{}` is not a range LOW..HIGH with 0 <= LOW <= HIGH", text);
  return std::pair{low, high};
}

absl::StatusOr<DataType> ParseDtype(const std::string& option, const std::string& text) {
  const std::optional<DataType> dtype = ParseDataType(text);
  if (dtype) return *dtype;
  return InvalidArgument("{}: unknown dtype `{}` (known: f32, f16, i64, u8, ...)", option, text);
}

// NAME=1,3,224,224, or NAME=1,3,224,224:f32.
absl::Status TakeShapes(const std::string& option, const std::vector<std::string>& texts,
                        importer::ImportOptions& result) {
  for (const std::string& text : texts) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment(option, text));
    const size_t colon = pair.second.find(':');
    QUENCH_ASSIGN_OR_RETURN(result.shapes[pair.first],
                            ParseShape(option, pair.second.substr(0, colon)));
    if (colon == std::string::npos) continue;
    QUENCH_ASSIGN_OR_RETURN(result.dtypes[pair.first],
                            ParseDtype(option, pair.second.substr(colon + 1)));
  }
  return absl::OkStatus();
}

// The options that shape an import and were given.
std::vector<std::string> ImportOptionsGiven(const ModelOptions& options) {
  std::vector<std::string> given;
  for (const auto& [name, there] : {std::pair{"--shape", !options.shapes.empty()},
                                    {"--size", !options.sizes.empty()},
                                    {"--dtype", !options.dtypes.empty()},
                                    {"--freeze", !options.freeze.empty()},
                                    {"--no-freeze", !options.no_freeze.empty()},
                                    {"--convert-config", !options.convert_config.empty()},
                                    {"--convert", !options.convert.empty()},
                                    {"--outputs", !options.outputs.empty()},
                                    {"--inputs", !options.inputs.empty()},
                                    {"--layout", !options.layout.empty()},
                                    {"--signature", !options.signature.empty()},
                                    {"--architecture", !options.architecture.empty()},
                                    {"--default-dtype", !options.default_dtype.empty()},
                                    {"--keep-quantized-weight", options.keep_quantized_weight},
                                    {"--opset", options.opset != 0},
                                    {"--external-root", !options.external_root.empty()}}) {
    if (there) given.emplace_back(name);
  }
  return given;
}

absl::Status Refuse(const std::vector<std::string>& given, const std::string& what) {
  if (given.empty()) return absl::OkStatus();
  return InvalidArgument("{}: {} appl{} to models", what, fmt::join(given, ", "),
                         given.size() == 1 ? "ies" : "y");
}

absl::Status RefuseImportOptions(const ModelOptions& options) {
  return Refuse(ImportOptionsGiven(options), fmt::format("`{}` is an IR module", options.model));
}

}  // namespace

absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(const std::string& option,
                                                                    const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument("{}: `{}` should read NAME=VALUE", option, text);
  }
  if (equals + 1 == text.size())
    return InvalidArgument("{}: `{}` has an empty value", option, text);
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

absl::StatusOr<std::map<std::string, int64_t>> ParseSizes(const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> sizes;
  for (const std::string& text : texts) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--size", text));
    QUENCH_ASSIGN_OR_RETURN(sizes[pair.first], ParseInt("--size", pair.second));
    if (sizes[pair.first] < 0) return InvalidArgument("--size: `{}` is negative", text);
  }
  return sizes;
}

static bool IsRange(const std::string& text) { return text.find("..") != std::string::npos; }

// Whether a text of --size is a size of data.
static bool IsOfData(const std::string& text, const ModelOptions& model, SizeIs size) {
  if (IsRange(text)) return false;
  if (size == SizeIs::kOfData) return true;
  const std::string symbol = text.substr(0, text.find('=') + 1);
  return std::any_of(model.sizes.begin(), model.sizes.end(), [&](const std::string& other) {
    return IsRange(other) && other.starts_with(symbol);
  });
}

std::vector<std::string> TakeDataSizes(ModelOptions& model, SizeIs size) {
  std::vector<std::string> of_data, of_model;
  for (const std::string& text : model.sizes)
    (IsOfData(text, model, size) ? of_data : of_model).push_back(text);
  model.sizes = std::move(of_model);
  return of_data;
}

bool HasDataSizes(const ModelOptions& model, SizeIs size) {
  return std::any_of(model.sizes.begin(), model.sizes.end(),
                     [&](const std::string& text) { return IsOfData(text, model, size); });
}

std::string SizesProblem(const ModelOptions& model, bool random) {
  if (random || !HasDataSizes(model)) return "";
  return "--size NAME=N needs --random: files have their sizes (NAME=N..N fixes the model's)";
}

void AddModelOptions(const Options& all, const std::shared_ptr<ModelOptions>& model, SizeIs size,
                     bool required) {
  const Options options = all.In("Input"), rare = options.Rare();
  const Option file =
      options.Add("MODEL", model->model,
                  "Model file (ONNX, PyTorch, TensorFlow, TFLite, Keras) or IR module", "FILE");
  if (required) file.Required();
  options.Add(
      "--shape", model->shapes,
      "Fix the shape (and dtype) of an input; -1 or ? leaves a dimension open, `scalar` is rank 0",
      "NAME=1,3,224,224[:f32]");
  options.Add("--size", model->sizes,
              size == SizeIs::kOfModel
                  ? "Size of a symbolic dimension, or the range of sizes that the result accepts"
                  : "Size of a symbolic dimension (required, except for a batch, which defaults to "
                    "1), or the range of sizes that the model accepts",
              "NAME=N|LOW..HIGH");
  rare.Add("--dtype", model->dtypes, "Set the dtype of an input", "NAME=f32");
  rare.Add("--freeze", model->freeze, "Turn an input into a constant, read from a .npy or .pb file",
           "NAME=FILE");
  rare.Add("--no-freeze", model->no_freeze,
           "Make a weight (all: every one) an input of the model instead of a constant",
           "NAME|all");
  rare.Add("--convert-config", model->convert_config,
           "Choose the operator for products of two matrices: use_nt_batch_matmul=false gives Gemm "
           "(ONNX), use_dense=false gives MatMul (TensorFlow)",
           "KEY=true|false");
  rare.Add("--convert", model->convert,
           "IR text file with functions that implement custom operators of the same names", "FILE");
  options
      .Add("--outputs", model->outputs, "Cut the model so that these values become its outputs",
           "NAME,...")
      .Delimiter(',');
  rare.Add("--inputs", model->inputs, "Inner values of a TensorFlow graph that become inputs",
           "NAME,...")
      .Delimiter(',');
  rare.Add("--layout", model->layout,
           "Position of channels in inputs and outputs of rank 4 and 5 (default: as in the model)",
           "first|last")
      .OneOf({"first", "last"});
  rare.Add(
      "--signature", model->signature,
      "Signature of a TensorFlow or TensorFlow Lite model to read; it names the inputs and outputs",
      "NAME");
  rare.Add("--architecture", model->architecture,
           "Configuration of a Keras model whose file contains only weights", "FILE.json");
  rare.Add("--default-dtype", model->default_dtype,
           "Type of TorchScript inputs that have no --dtype (default: f32)", "f32");
  rare.Flag("--keep-quantized-weight", model->keep_quantized_weight,
            "Keep weights of quantized TorchScript modules as integers instead of converting them "
            "to floats");
  rare.Add("--opset", model->opset, "Treat the model as this ONNX opset", "N").AtLeast(1);
  rare.Add("--external-root", model->external_root,
           "Folder that must contain the model's external data (default: the model's folder)",
           "DIR");
  options.Add("--batch", model->batch, "Fix the batch size (first dimension of the inputs)", "N")
      .AtLeast(1);
}

static void AddPassFlag(const Options& options, const std::shared_ptr<ModelOptions>& model,
                        std::string_view name) {
  const std::string snake(name);
  std::string kebab = snake;
  std::replace(kebab.begin(), kebab.end(), '_', '-');
  options.In("Passes").Rare().Flag(
      "--no-" + kebab, [model, snake] { model->disabled.push_back(snake); },
      fmt::format("Skip: {}", passes::FindPassSwitch(name)->doc));
}

void AddPassFlags(const Options& options, const std::shared_ptr<ModelOptions>& model,
                  const std::vector<std::string_view>& passes) {
  for (const std::string_view name : passes) {
    if (name == "store_float16") continue;  // comes with the flags below
    AddPassFlag(name == "set_batch_size" ? options.Under({"--batch"}) : options, model, name);
  }
}

std::vector<std::string_view> PassesThatShow() {
  std::vector<std::string_view> names = passes::PipelineSwitches();
  const std::vector<std::string_view> more = passes::CodegenSwitches();
  names.insert(names.end(), more.begin(), more.end());
  for (const char* hidden : {"dead_code", "fold_constants", "widen_integers"})
    std::erase(names, hidden);
  return names;
}

void AddFloat16Flags(const Options& all, const std::shared_ptr<ModelOptions>& model,
                     const std::vector<std::string>& excluded) {
  const Options options = all.In("Precision");
  options
      .Flag("--float16", model->float16,
            "Store weights and activations as f16 where that is safe; sums are f32, or partly f16 "
            "on CPUs with f16 arithmetic")
      .Excludes(excluded);
  std::vector<std::string> others = excluded;
  others.emplace_back("--float16");
  options
      .Flag("--bfloat16", model->bfloat16,
            "Store weights and activations as bf16 (range of f32, 8 bits of precision); CPUs with "
            "bf16 products use them, those with AMX at several times the speed of f32")
      .Excludes(others);
  AddPassFlag(options.Under({"--float16", "--bfloat16"}), model, "store_float16");
}

std::string StageProblem(const ModelOptions& options, const std::string& stage,
                         const std::vector<std::string>& passes) {
  if (options.batch != 0 && stage == "imported")
    return "--batch cannot be applied to --stage imported";
  if (stage == "codegen-ready") return "";
  if ((options.float16 || options.bfloat16) &&
      std::find(passes.begin(), passes.end(), "store_float16") == passes.end()) {
    return fmt::format("--{}float16: passes run only with --stage codegen-ready",
                       options.bfloat16 ? "b" : "");
  }
  if (options.disabled.empty()) return "";
  // Without a pipeline there is set_batch_size alone.
  if (options.disabled == std::vector<std::string>{"set_batch_size"}) return "";
  return fmt::format("--no-{}: passes run only with --stage codegen-ready",
                     fmt::join(options.disabled, ", --no-"));
}

absl::Status RefuseModelOptions(const ModelOptions& options, const std::string& what) {
  std::vector<std::string> given = ImportOptionsGiven(options);
  if (options.batch != 0) given.emplace_back("--batch");
  for (const std::string& pass : options.disabled) given.push_back("--no-" + pass);
  return Refuse(given, what);
}

absl::StatusOr<FileKind> KindOf(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return FileKind::kModel;  // a saved model
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 64));
  if (head.substr(0, 4) ==
      "\x7f"
      "ELF")
    return FileKind::kArtifact;
  if (head.substr(0, 19) == "age-encryption.org/") return FileKind::kArtifact;  // encrypted
  if (IsTextModule(head)) return FileKind::kTextModule;
  if (IsModuleFile(head) || IsSerializedModule(head)) return FileKind::kBinaryModule;
  return FileKind::kModel;
}

absl::StatusOr<importer::ImportOptions> ImportOptionsOf(const ModelOptions& options) {
  importer::ImportOptions result;
  QUENCH_RETURN_IF_ERROR(TakeShapes("--shape", options.shapes, result));
  for (const std::string& text : options.sizes) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--size", text));
    QUENCH_ASSIGN_OR_RETURN(result.dims[pair.first], ParseRange(pair.second));
  }
  for (const std::string& text : options.dtypes) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--dtype", text));
    QUENCH_ASSIGN_OR_RETURN(result.dtypes[pair.first], ParseDtype("--dtype", pair.second));
  }
  for (const std::string& text : options.freeze) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--freeze", text));
    QUENCH_ASSIGN_OR_RETURN(result.freeze_params[pair.first], ReadTensorFile(pair.second));
  }
  result.no_freeze = {options.no_freeze.begin(), options.no_freeze.end()};
  for (const std::string& text : options.convert_config) {
    QUENCH_ASSIGN_OR_RETURN(const auto pair, SplitAssignment("--convert-config", text));
    if (pair.second != "true" && pair.second != "false")
      return InvalidArgument("--convert-config: `{}` is not KEY=true or KEY=false", text);
    result.convert_config[pair.first] = pair.second == "true";
  }
  for (const std::string& file : options.convert) {
    QUENCH_ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMaxConversionBytes));
    result.conversions.push_back(std::move(text));
  }
  result.outputs = options.outputs;
  result.inputs = options.inputs;
  result.layout = options.layout;
  result.signature = options.signature;
  if (!options.architecture.empty()) {
    QUENCH_ASSIGN_OR_RETURN(result.architecture,
                            ReadFile(options.architecture, kMaxArchitectureBytes));
    if (result.architecture.empty())
      return InvalidArgument("--architecture: `{}` is empty", options.architecture);
  }
  if (!options.default_dtype.empty()) {
    QUENCH_ASSIGN_OR_RETURN(result.default_dtype,
                            ParseDtype("--default-dtype", options.default_dtype));
  }
  result.keep_quantized_weight = options.keep_quantized_weight;
  result.opset = options.opset;
  result.external_root = options.external_root;
  return result;
}

absl::StatusOr<importer::Imported> LoadModel(const ModelOptions& options,
                                             const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const FileKind kind, KindOf(options.model));
  if (kind == FileKind::kArtifact) {
    return InvalidArgument("`{}` is a compiled library; this command needs a model or an IR module",
                           options.model);
  }
  QUENCH_ASSIGN_OR_RETURN(const importer::ImportOptions import, ImportOptionsOf(options));
  if (kind == FileKind::kModel) {
    QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
    QUENCH_ASSIGN_OR_RETURN(importer::Imported imported,
                            importer::ImportModel(options.model, import, *store, context));
    for (const std::string& warning : importer::WarningsOf(imported.canonical))
      PrintWarning(warning);
    return imported;
  }
  QUENCH_RETURN_IF_ERROR(RefuseImportOptions(options));
  QUENCH_ASSIGN_OR_RETURN(Graph graph, LoadModuleFile(options.model));
  return importer::Imported{graph, graph};
}

absl::StatusOr<Graph> WithBatch(Graph graph, const ModelOptions& options,
                                const StepContext& context) {
  if (options.batch == 0) return graph;
  return passes::RunPass(*passes::FindPass("set_batch_size"), std::move(graph),
                         PassOptionsOf(options), context);
}

passes::PassOptions PassOptionsOf(const ModelOptions& options) {
  passes::PassOptions result;
  result.batch = options.batch;
  if (options.float16) result.store_as = DataType::kF16;
  if (options.bfloat16) result.store_as = DataType::kBF16;
  result.magnitudes = options.magnitudes;
  result.narrows_later = options.narrows_later;
  result.disabled.insert(options.disabled.begin(), options.disabled.end());
  return result;
}

absl::StatusOr<Tensor> ReadTensorFile(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".npy") return ReadNpy(path);
  if (extension == ".pb") return importer::ReadTensorProto(path);
  return InvalidArgument("`{}`: tensors are read from .npy and .pb (ONNX TensorProto) files", path);
}

std::string TypeText(const Type& type, const SymbolTable& symbols) {
  if (type.kind != ValueKind::kTensor) return "non-tensor";
  std::string text(DataTypeName(type.dtype));
  if (!type.ranked) return text + "[?]";
  text += "[";
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += (i > 0 ? ", " : "") + SpelledOut(symbols, type.dims[i]);
  return text + "]";
}

}  // namespace quench::cli
