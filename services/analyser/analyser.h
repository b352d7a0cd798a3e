// Report on a model: its layers, their costs, values and weights.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/library_sizes.h"
#include "common/ir/graph.h"
#include "services/analyser/statistics.h"

namespace quench::analyser {

// Cost of a layer, of the layers of an operator, or of a part of the model.
struct Work {
  int64_t macs = 0;  // without bias
  int64_t macs_with_bias = 0;
  int64_t macs_without_padding = 0;     // without products with padding
  int64_t operations = 0;               // on single elements
  int64_t operations_with_padding = 0;  // with the padding of pools that pad unevenly
  int64_t flops = 0;                    // 2 per MAC, 1 per addition of a bias and per operation
  int64_t parameters = 0, weight_bytes = 0;
  int64_t activation_bytes = 0;  // of outputs

  Work& operator+=(const Work& other);
};

struct LayerReport {
  std::string node, op;
  std::string kind;                  // ops::WorkKindName
  std::string kernel;                // size of the window: "3x3"
  std::vector<std::string> inputs;   // types of the inputs that are not constants
  std::vector<std::string> outputs;  // "f32[1, 64, 56, 56]"
  Work work = {};
  int64_t shared_parameters = 0;  // also read by an earlier layer, counted there
  int64_t shared_weight_bytes = 0;
  int64_t input_bytes = 0;        // of `inputs`
  int64_t first_input_bytes = 0;  // of the first input, a constant or not
  int64_t first_output_bytes = 0;
  int64_t nested_bytes = 0;  // its part of nested_activation_bytes beyond its outputs
  int64_t live_bytes = 0;    // of all values that are live while it runs
  std::vector<int> reads;    // indices into ModelReport::values
  // Between memory and CPU: each value and weight that it reads or writes, once.
  int64_t moved_bytes = 0;
  double predicted_seconds = 0;  // set by AddPredictions
  std::string bound;  // "compute" or "memory", whichever takes longer; "" if neither does
};

// Peak speeds of a machine: the ceilings of the roofline model (Williams, Waterman and Patterson,
// Communications of the ACM 52(4), 2009).
struct Ceilings {
  std::string name;    // of the machine: "raspberry-pi/5"
  std::string source;  // origin of the numbers
  double gflops = 0;   // 1e9 operations on f32 a second, on all of its cores
  double gbytes = 0;   // 1e9 bytes a second from its memory
  // Operations per byte above which computing takes longer than moving bytes.
  double ridge() const { return gflops / gbytes; }
};

struct OperatorReport {
  std::string op, kind;
  int64_t layers = 0;
  Work work = {};
};

// An input of the model or an output of a layer. Layers count from 0; `first` is -1 for inputs.
// Outputs of the model live until the last layer.
struct ValueLife {
  std::string name, type;
  int64_t bytes = 0;
  int first = -1, last = -1;
};

struct WeightReport {
  std::string name, type;
  std::string layer;  // the first layer that reads it
  int64_t elements = 0, zeros = 0;
  int64_t not_finite = 0;  // NaN or infinite: left out of the following
  double min = 0, max = 0, mean = 0, std = 0;
  std::vector<int64_t> histogram;  // counts in equal parts of [min, max]
};

// A value in one run of the model; filled in by the caller that runs it.
struct ActivationReport {
  std::string name, type, layer;
  TensorStatistics statistics = {};
};

// Places of values in compiled code; filled in by the caller that compiles the model.
struct MemoryPlan {
  struct Buffer {
    std::string values;  // names of the values that use it one after the other
    int64_t offset = 0, bytes = 0;
    int first = 0, last = 0;  // indices into `kernels`
  };
  struct Kernel {
    std::string node;
    int64_t used_bytes = 0;  // highest while it runs
  };
  std::string target;
  int64_t arena_bytes = 0, lower_bound_bytes = 0;  // lower_bound_bytes: no placement needs less
  std::vector<Kernel> kernels;                     // in order of execution
  std::vector<Buffer> buffers;                     // by offset
};

struct ModelReport {
  std::string name, fingerprint, structure_hash;
  std::vector<std::pair<std::string, std::string>> inputs, outputs;         // name, type
  std::map<std::string, int64_t> operators;                                 // histogram
  Work work;                                                                // of all layers
  std::map<std::string, int64_t> parameters_by_type, weight_bytes_by_type;  // "i8"
  std::map<std::string, int64_t> macs_by_op;
  int64_t trainable_parameters = 0;  // of floating-point type
  int64_t shared_parameters = 0;     // counted at every read after the first
  int64_t buffers = 0;               // elements of means and variances of batch norms
  int64_t input_bytes = 0;
  int64_t peak_activation_bytes = 0;
  int64_t forward_backward_bytes = 0;  // torchinfo's: outputs of layers with parameters, twice
  // Outputs of layers; for pools that pad unevenly also the padded input, and the output once more.
  int64_t nested_activation_bytes = 0;
  std::vector<OperatorReport> by_operator;   // most expensive first
  std::map<std::string, int64_t> uncounted;  // layers by operator that cost nothing by the rules
  std::vector<LayerReport> layers;
  std::vector<ValueLife> values;
  std::vector<WeightReport> weights;            // if they were asked for
  std::vector<std::string> rules;               // the rules of counting
  std::map<std::string, int64_t> symbol_sizes;  // sizes at which symbolic dims were counted
  int64_t moved_bytes = 0;                      // of all layers
  std::optional<Ceilings> ceilings;             // used for the predictions
  double predicted_seconds = 0;                 // of all layers, one after the other
  std::optional<MemoryPlan> memory_plan;        // beside the lives of `values`
  std::vector<ActivationReport> activations;    // in order of execution, if the model was run
};

struct AnalyseOptions {
  std::map<std::string, int64_t> sizes = {};  // of symbolic dims; others count at max(min, 1)
  bool weight_statistics = false;             // ModelReport::weights
  std::optional<Ceilings> ceilings = {};      // for predictions
};

// `canonical` gives types and counts node by node, before any pass.
absl::StatusOr<ModelReport> Analyse(const Graph& imported, const Graph& canonical,
                                    const AnalyseOptions& options = {},
                                    const StepContext& context = {});

struct TableOptions {
  std::string listing = "layers";         // one of Listings
  int depth = 0;                          // of the tree of layers to show; 0: all levels
  std::vector<std::string> columns = {};  // of the tree, some of Columns; empty: the usual ones
  bool rules = false;                     // show the rules of counting after the layers
};
const std::vector<std::string>&
Listings();                                 // "layers", "bandwidth", "roofline", "timeline", "plan"
const std::vector<std::string>& Columns();  // of the tree of layers
std::string ToTable(const ModelReport& report, const TableOptions& options = {});
std::string ToJson(const ModelReport& report);
// Columns that have numbers only after AddPredictions.
bool NeedsCeilings(const std::string& column);

// A compiled library's description of itself: it has nodes, but no longer the layers of its model.
struct LibraryReport {
  std::string uuid, fingerprint, producer;
  std::string variant;                                               // the one chosen for this CPU
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // name, type
  std::vector<std::pair<std::string, std::string>> nodes;            // name, kernel
  std::map<std::string, int64_t> kernels;                            // histogram
  LibrarySizes sizes;
  int64_t arena_bytes = 0, arena_lower_bound_bytes = 0;
  std::map<std::string, int64_t> symbol_sizes;  // sizes that the arena is planned for
};
// Runs the library once on random inputs. It must be for this machine's architecture: others cannot
// be opened.
absl::StatusOr<LibraryReport> AnalyseLibrary(const std::filesystem::path& path,
                                             const std::map<std::string, int64_t>& sizes,
                                             const StepContext& context);
std::string ToTable(const LibraryReport& report);
std::string ToJson(const LibraryReport& report);

}  // namespace quench::analyser
