// Runs artifacts through libquench_rt: inference, taps, timing. The only C++ code that executes
// artifacts.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/context.h"
#include "common/base/dtype.h"
#include "common/ir/tensor.h"

namespace quench {

struct ArtifactDim {
  int64_t value = -1;  // -1: symbolic
  std::string symbol;
  int64_t min = 0, max = 0;
};
struct ArtifactTensor {
  std::string name;
  DataType dtype = DataType::kUndefined;
  std::vector<ArtifactDim> dims;
};

// Output `output` of a run is input `input` of the next; both are indices.
struct ArtifactState {
  size_t input = 0, output = 0;
  Tensor initial;  // for the first run
};

struct NodeTiming {
  std::string node;
  std::string kernel;
  double seconds = 0;
};

struct BenchResult {
  double median_ms = 0, min_ms = 0, p99_ms = 0, load_ms = 0, first_run_ms = 0;
  double lower_quartile_ms = 0, upper_quartile_ms = 0;
  int64_t arena_bytes = 0, arena_lower_bound = 0, runs = 0;
  int threads = 1;
  std::string variant;                   // the one that ran
  std::string device;                    // Artifact::device; empty where nobody said it
  std::map<std::string, int64_t> sizes;  // of symbolic dims, those that were chosen too
  int64_t batch = 0;                     // samples in a run; 0: the model has no batch
  // Cores of this process, and how many of them other programs took meanwhile; 0 and 0: nobody knows.
  int cores = 0;
  double taken_cores = 0;

  double runs_per_second() const { return median_ms > 0 ? 1e3 / median_ms : 0; }
};

// Where a run in progress keeps what it computes.
struct RunMemory {
  const void* const* inputs;  // one per input
  void* const* outputs;       // one per output; null where the run has not made it yet
  std::span<const int64_t> slots;
  const std::byte* arena;
  // Runs on a GPU: the places in its memory, which `read` copies from; null and empty on the CPU.
  const std::byte* device_arena = nullptr;
  const void* const* device_inputs = nullptr;
  void* const* device_outputs = nullptr;
  std::function<bool(void* to, const void* from, uint64_t bytes)> read = {};
};

// How a library is opened.
struct OpenOptions {
  OpenOptions(int num_threads = 1, std::string on = "")  // NOLINT(google-explicit-constructor)
      : threads(num_threads), device(std::move(on)) {}
  int threads;  // 0: as many as the target it was compiled for says, or one
  // "cpu", "cuda", "cuda:1"; "": a GPU if the library has code for it and there is one, else the CPU.
  std::string device;
};

// The key of an encrypted library: modelKey.bin and its password, or a file with an age identity.
struct ArtifactKey {
  std::string path;  // "": there is none
  std::optional<std::string> password;
};

class Artifact {
 public:
  // Refuses with a sentence: not an artifact, ABI too new, CPU features missing, no such device, key missing or
  // wrong.
  static absl::StatusOr<std::unique_ptr<Artifact>> Open(const std::filesystem::path& path,
                                                        const OpenOptions& options = {},
                                                        const ArtifactKey& key = {});
  virtual ~Artifact() = default;

  virtual const std::vector<ArtifactTensor>& inputs() const = 0;
  virtual const std::vector<ArtifactTensor>& outputs() const = 0;
  virtual const std::vector<ArtifactState>& states()
      const = 0;  // the caller carries them from run to run, not Run
  virtual std::string uuid() const = 0;
  virtual std::string fingerprint() const = 0;
  virtual std::string producer() const = 0;
  virtual std::string variant() const = 0;  // the one that runs
  virtual std::string device() const = 0;   // "cpu", or "cuda:0" and the GPU's name
  // Texts given to the compiler: names of classes by index, and a JSON object that says how inputs are
  // prepared; empty if none was given.
  virtual std::vector<std::string> class_names() const = 0;
  virtual std::string preprocessing() const = 0;

  using TapSink = std::function<void(const std::string& value, const Tensor& tensor)>;
  // Inputs in artifact order; wrong count, dtype, rank or size is INVALID_ARGUMENT naming the
  // input. `tap` needs a tap build.
  virtual absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs,
                                                  const StepContext& context = {},
                                                  const TapSink& tap = {}) = 0;
  using NodeSink = std::function<void(int node, const RunMemory& memory)>;
  // As Run. `sink` is called when a node begins or goes on, by its index, and with the number of nodes
  // after the last one: whoever knows where the code puts its values can read them.
  virtual absl::StatusOr<std::vector<Tensor>> Observe(std::span<const Tensor> inputs,
                                                      const StepContext& context,
                                                      const NodeSink& sink) = 0;
  // Seconds that one run takes, without looking at its outputs: what a benchmark measures.
  virtual absl::StatusOr<double> Time(std::span<const Tensor> inputs,
                                      const StepContext& context = {}) = 0;
  // Seconds per node of one run.
  virtual absl::StatusOr<std::vector<NodeTiming>> Profile(std::span<const Tensor> inputs) = 0;
  virtual int64_t arena_bytes() const = 0;  // of the last plan
  virtual int64_t arena_lower_bound() const = 0;
};

struct BenchOptions {
  int threads = 1;
  double seconds = 3;
  std::map<std::string, int64_t> sizes;  // of symbolic dims; ChooseSizes says the others
  uint64_t seed = 1;
  std::string device = {};  // OpenOptions::device
};

// Draws inputs, opens the artifact afresh (load_ms), runs once (first_run_ms), warms up, then measures
// for `seconds`.
absl::StatusOr<BenchResult> Benchmark(const std::filesystem::path& path,
                                      const BenchOptions& options, const StepContext& context = {},
                                      const ArtifactKey& key = {});

// Sentences that say why the times may mislead: other programs took the cores, or runs scatter.
std::vector<std::string> BenchWarnings(const BenchResult& result);

// Integers that index any table of a model: ids and types of tokens, masks.
constexpr uint64_t kAnyIndex = 2;

// Deterministic inputs for declared types: floats from N(0,1) clipped to [-4,4], integers from 0 to
// `below` - 1, bools fair; symbolic dims take `sizes` by symbol name, else max(min, 1).
absl::StatusOr<std::vector<Tensor>> RandomInputs(std::span<const ArtifactTensor> inputs,
                                                 uint64_t seed,
                                                 const std::map<std::string, int64_t>& sizes = {},
                                                 uint64_t below = 8);

}  // namespace quench
