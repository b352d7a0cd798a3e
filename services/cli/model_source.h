// Models as the commands take them: model files of any format, IR modules (text or binary), and the options that
// shape an import.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "common/passes/pass.h"
#include "services/cli/options.h"
#include "services/importer/importer.h"

namespace quench::cli {

struct ModelOptions {
  std::string model;
  std::vector<std::string> shapes;  // NAME=1,3,224,224 or NAME=1,3,224,224:f32
  std::vector<std::string> sizes;   // NAME=N or NAME=LOW..HIGH
  std::vector<std::string> dtypes;  // NAME=f32
  std::vector<std::string> freeze;  // NAME=FILE
  std::vector<std::string> no_freeze;
  std::vector<std::string> convert_config;  // KEY=true|false
  std::vector<std::string> convert;         // files
  std::vector<std::string> outputs;         // value names
  std::vector<std::string> inputs;
  std::string layout;  // "first", "last"
  std::string signature;
  std::string architecture;  // a file
  std::string default_dtype;
  bool keep_quantized_weight = false;
  int64_t opset = 0;
  int64_t batch = 0;
  bool float16 = false, bfloat16 = false;
  bool narrows_later = false;                // PassOptions::narrows_later
  std::map<std::string, double> magnitudes;  // of values, from statistics: for float16
  std::string external_root;
  std::vector<std::string> disabled;  // filled by the --no-PASS flags
};

// Meaning of `--size NAME=N` for a command. NAME=LOW..HIGH always is the range of sizes that the model accepts.
enum class SizeIs : uint8_t {
  kOfModel,  // the symbol is fixed
  kOfData,   // the size that the model is run or counted at: TakeDataSizes
};

// MODEL, the import options and --batch. Not `required`: a command that can do without a model says so
// itself where neither is given. `size` is the help of --size.
void AddModelOptions(const Options& options, const std::shared_ptr<ModelOptions>& model,
                     SizeIs size = SizeIs::kOfModel, bool required = true);
// The sizes of data among those of --size; the others stay in `model`. kOfModel: a NAME=N beside a
// range for the same NAME is one.
std::vector<std::string> TakeDataSizes(ModelOptions& model, SizeIs size = SizeIs::kOfData);
// Sizes of data are for random values only: what is wrong, or "".
std::string SizesProblem(const ModelOptions& model, bool random);
// Whether --size has one.
bool HasDataSizes(const ModelOptions& model, SizeIs size = SizeIs::kOfData);
// A --no-PASS flag for each of the passes, which the command must run; after AddModelOptions.
void AddPassFlags(const Options& options, const std::shared_ptr<ModelOptions>& model,
                  const std::vector<std::string_view>& passes);
// The passes of a compilation whose absence can be seen in values: codegen drops dead nodes and
// computes constants anyway, and numbers of 4 bits are the same once they are widened.
std::vector<std::string_view> PassesThatShow();
// INVALID_ARGUMENT naming the options of AddModelOptions that were given although nothing is
// imported: `what` says why ("`m.so` is a compiled library").
absl::Status RefuseModelOptions(const ModelOptions& options, const std::string& what);

// Those options among --batch, --float16, --bfloat16 and --no-PASS that have no effect at a stage ("imported", "canonical",
// "codegen-ready") that a module is asked for at, when `passes` run besides; "" if nothing.
std::string StageProblem(const ModelOptions& options, const std::string& stage,
                         const std::vector<std::string>& passes = {});

// --float16 and --bfloat16, of commands that compile, or look at what is compiled; not beside
// `excluded`.
void AddFloat16Flags(const Options& options, const std::shared_ptr<ModelOptions>& model,
                     const std::vector<std::string>& excluded = {});

// Splits NAME=VALUE at the first '='; INVALID_ARGUMENT naming the option otherwise.
absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(const std::string& option,
                                                                    const std::string& text);

// "N" sizes by symbol name from repeated NAME=N options.
absl::StatusOr<std::map<std::string, int64_t>> ParseSizes(const std::vector<std::string>& texts);

enum class FileKind { kArtifact, kTextModule, kBinaryModule, kModel };
// By content: ELF, text module, binary module, anything else.
absl::StatusOr<FileKind> KindOf(const std::string& path);

// The options of an import, without --batch and passes. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<importer::ImportOptions> ImportOptionsOf(const ModelOptions& options);

// Imports a model, or reads a module (then `imported` and `canonical` are both the module's graph).
absl::StatusOr<importer::Imported> LoadModel(const ModelOptions& options,
                                             const StepContext& context);

// The graph at the size of --batch, if that is given: for what takes a model before any other pass.
absl::StatusOr<Graph> WithBatch(Graph graph, const ModelOptions& options,
                                const StepContext& context);

passes::PassOptions PassOptionsOf(const ModelOptions& options);

// A tensor from NAME=FILE's file: .npy, or .pb (an ONNX TensorProto).
absl::StatusOr<Tensor> ReadTensorFile(const std::string& path);

// Type as text: "f32[batch, 3, 224, 224]".
std::string TypeText(const Type& type, const SymbolTable& symbols);

}  // namespace quench::cli
