// Models in, graphs out.
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
  std::string format;  // a name of frontends.def; "" goes by the file's bytes
  // input -> shape; -1 leaves a dim as declared
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::pair<int64_t, int64_t>> dims;  // symbol -> [min, max]
  std::map<std::string, DataType> dtypes;                   // input -> dtype override
  // ONNX: overrides the model's default-domain opset; 0 keeps it
  int64_t opset = 0;
  std::map<std::string, Tensor> freeze_params;  // inputs that become constants
  // Initializers that stay inputs of the model, by name; `all`: those that are parameters, which are
  // numbers of floating point or 8 bits with a rank above 0.
  std::set<std::string> no_freeze;
  // How products are written: key -> value. ONNX has `use_nt_batch_matmul` (true: products of two
  // matrices are MatMul, as the model has them; false: Gemm); other formats have none.
  std::map<std::string, bool> convert_config;
  // Texts with functions that operators become (graph/functions.h), before what Quench knows of them.
  std::vector<std::string> conversions;
  std::vector<std::string> outputs;  // cut the model at these values; empty keeps its outputs
  // TensorFlow: values inside the graph that become inputs
  std::vector<std::string> inputs;
  // TensorFlow Lite and TensorFlow: which of the model's functions; "" is the first subgraph of the one,
  // by tensor names, and `serving_default` of the other
  std::string signature;
  // Keras: the model's configuration as JSON, for files with weights alone; "" for none
  std::string architecture;
  // PyTorch: element type of inputs that neither the model nor `dtypes` tells; kUndefined is f32
  DataType default_dtype = DataType::kUndefined;
  // PyTorch: weights of quantized modules stay integers, with scales; else they become floats
  bool keep_quantized_weight = false;
  // Where inputs and outputs of rank 4 and 5 have their channels: "first", "last", or "" for as the
  // model has them.
  std::string layout;
  // ONNX: external data is resolved beneath; default: model's folder
  std::filesystem::path external_root;
  // Where each file of external data lies, by the location that the model names: then nothing is
  // looked for in folders.
  std::optional<std::map<std::string, std::filesystem::path>> external_files;
};

struct Imported {
  Graph imported;  // stage imported: the model's own nodes; types filled where inference knows them
  Graph canonical;  // stage canonical, before any pass
};

// Reads a model of any format: a file, or the folder of a TensorFlow saved model. Options that only
// another format has are INVALID_ARGUMENT. Weights of 4 KiB and more are copied into `store` blob by blob (never all in
// memory) and mapped from there. Every unsupported operator is reported in one error (name, domain,
// opset, nodes, count).
absl::StatusOr<Imported> ImportModel(const std::filesystem::path& path,
                                     const ImportOptions& options, BlobStore& store,
                                     const StepContext& context = {});

// The file that a path to a model stands for: of a folder its `saved_model.pb` (or `.pbtxt`), which
// INVALID_ARGUMENT misses; of anything else the path itself.
absl::StatusOr<std::filesystem::path> ModelFileOf(const std::filesystem::path& path);

// Differences between an imported graph and what its author may have meant, one sentence each:
// branches that cannot run, for example. They travel in the graph's metadata, as `warning.<node>`.
std::vector<std::string> WarningsOf(const Graph& graph);
std::vector<std::string> WarningsOf(const std::map<std::string, std::string>& metadata);

// An operator that a format has, and what Quench makes of it.
struct KnownOp {
  std::string domain, name;  // the domain of ONNX's own is "", of another format its name
  std::string op;            // of the catalogue, that it ends as; "" where it is a constant
  bool supported = false;
  std::vector<std::string> restrictions;  // what must hold, one sentence each; none: all is taken
};
// Sorted by domain and name.
std::vector<KnownOp> KnownOps();

struct UnsupportedOp {
  std::string domain, op;
  int64_t opset = 0;
  std::vector<std::string> nodes;
};
// Operators of the model that Quench cannot import, without importing it.
absl::StatusOr<std::vector<UnsupportedOp>> FindUnsupported(const std::filesystem::path& path,
                                                           const ImportOptions& options);

// Locations of the external data that the model's tensors name, each once.
absl::StatusOr<std::vector<std::string>> ExternalLocations(const std::filesystem::path& path,
                                                           const ImportOptions& options);

// Second opinion by libonnx: its checker and its shape inference, where it knows the opset. One
// line per disagreement with `imported`; empty when they agree. Says so when the opset is newer
// than libonnx.
absl::StatusOr<std::vector<std::string>> CheckWithLibonnx(const std::filesystem::path& path,
                                                          const Graph& imported);

// Writes an `imported` or `canonical` graph as an ONNX model (external data above 1 GiB).
absl::Status ExportOnnx(const Graph& graph, const std::filesystem::path& path,
                        const StepContext& context = {});

}  // namespace quench::importer
