// Reads models as graphs.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"

namespace quench::importer {

struct ImportOptions {
  std::string format;  // a name of frontends.def; "": recognized by the file's bytes
  // input -> shape; -1 leaves a dim as declared
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::pair<int64_t, int64_t>> dims;  // symbol -> [min, max]
  std::map<std::string, DataType> dtypes;                   // input -> dtype override
  // ONNX: overrides the model's default-domain opset; 0 keeps it
  int64_t opset = 0;
  std::map<std::string, Tensor> freeze_params;  // inputs that become constants
  // Names of initializers that stay inputs of the model; `all`: all parameters, which are initializers
  // of floating-point or 8-bit numbers with a rank above 0.
  std::set<std::string> no_freeze;
  // The form of products: key -> value. ONNX has `use_nt_batch_matmul` (true: products of two matrices
  // stay MatMul, as in the model; false: they become Gemm); other formats have no key.
  std::map<std::string, bool> convert_config;
  // Texts with functions that replace operators (graph/functions.h), before Quench's own conversions.
  std::vector<std::string> conversions;
  std::vector<std::string> outputs;  // cut the model at these values; empty keeps its outputs
  // TensorFlow: values inside the graph that become inputs
  std::vector<std::string> inputs;
  // TensorFlow Lite and TensorFlow: the model's function to import; "": for TensorFlow Lite the first
  // subgraph, with tensor names, for TensorFlow `serving_default`
  std::string signature;
  // Keras: the model's configuration as JSON, for files that only have weights; "" for others
  std::string architecture;
  // PyTorch: element type of inputs if neither the model nor `dtypes` gives it; kUndefined means f32
  DataType default_dtype = DataType::kUndefined;
  // PyTorch: weights of quantized modules stay integers, with scales; else they become floats
  bool keep_quantized_weight = false;
  // The position of the channels in inputs and outputs of rank 4 and 5: "first", "last", or "" for that
  // of the model.
  std::string layout;
  // ONNX: external data is looked up beneath this folder; default: the model's folder
  std::filesystem::path external_root;
  // The path of each file of external data, by the location that the model names; if set, no folder is
  // searched.
  std::optional<std::map<std::string, std::filesystem::path>> external_files;
};

struct Imported {
  Graph imported;   // stage imported: the model's own nodes, with types as far as inferred
  Graph canonical;  // stage canonical, before any pass
};

// Reads a model of any format: a file, or the folder of a TensorFlow saved model. Options that only
// another format has are INVALID_ARGUMENT. Weights of 4 KiB and more are copied into `store` blob by blob (never all in
// memory) and mapped from there. Every unsupported operator is reported in one error (name, domain,
// opset, nodes, count).
absl::StatusOr<Imported> ImportModel(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context = {});

// The model file for a path: in a folder its `saved_model.pb` (or `.pbtxt`), INVALID_ARGUMENT if it has
// neither; for anything else the path itself.
absl::StatusOr<std::filesystem::path> ModelFileOf(const std::filesystem::path& path);

// Differences between an imported graph and what its author may have meant, one sentence each:
// branches that cannot run, for example. They travel in the graph's metadata, as `warning.<node>`.
std::vector<std::string> WarningsOf(const Graph& graph);
std::vector<std::string> WarningsOf(const std::map<std::string, std::string>& metadata);

// An operator of a format, and Quench's support for it.
struct KnownOp {
  std::string domain, name;  // domain: "" for ONNX's own, another format's name for its
  std::string op;            // the operator of the catalogue that it becomes; "" if a constant
  bool supported = false;
  std::vector<std::string> restrictions;  // conditions, one sentence each; none: no restriction
};
// All operators of all formats, sorted by domain and name.
std::vector<KnownOp> KnownOps();

struct UnsupportedOp {
  std::string domain, op;
  int64_t opset = 0;
  std::vector<std::string> nodes;
};
// The model's operators that Quench cannot import, found without importing the model.
absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupported(const std::filesystem::path& path,
                                                           const ImportOptions& options);

// Locations of the external data that the model's tensors name, each once.
absl::StatusOr<std::vector<std::string>> ExternalLocations(const std::filesystem::path& path,
                                                           const ImportOptions& options);

// A second opinion by libonnx: its checker and its shape inference, if it knows the opset. One line
// per disagreement with `imported`; empty if they agree. A line also says if the opset is newer than
// libonnx.
absl::StatusOr<std::vector<std::string>> CheckWithLibonnx(const std::filesystem::path& path,
                                                          const Graph& imported);

// Writes an `imported` or `canonical` graph as an ONNX model (external data above 1 GiB). Partitions are put back into
// the model, and each is also a model of its own in PartsFolder(path).
absl::Status ExportOnnx(const Graph& graph, const std::filesystem::path& path,
                        const StepContext& context = {});
// `m.parts` beside `m.onnx`.
std::filesystem::path PartsFolder(const std::filesystem::path& path);
// Writes each partition of a `canonical` graph as an ONNX model to `folder`, which is created: `NAME.onnx`, in which
// other characters than letters, digits, `.`, `_` and `-` are `_`.
absl::Status ExportParts(const Graph& graph, const std::filesystem::path& folder,
                         const StepContext& context = {});

}  // namespace quench::importer
