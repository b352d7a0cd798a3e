// Work of commands at a gateway.
//
// `quench` has no gRPC in it, and builds in half the time for that: there each of these becomes
// quench-remote, the program beside it that is the same with remote/.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/runner/inputs.h"
#include "common/runner/runner.h"
#include "services/analyser/analyser.h"
#include "services/analyser/compare.h"
#include "services/analyser/diff.h"
#include "services/analyser/edit.h"
#include "services/analyser/infer.h"
#include "services/analyser/nodes.h"
#include "services/analyser/partition.h"
#include "services/analyser/tile.h"
#include "services/analyser/verify.h"
#include "services/cli/gateway_options.h"
#include "services/cli/model_source.h"
#include "services/cli/quantization.h"
#include "services/codegen/codegen.h"

namespace quench::cli {

struct PrecisionReport;

// model.so, model.o or model.a.
std::string LibraryName(codegen::Emit emit);

// Result of a compilation beside the library and its header in a folder; `report` is empty where a pass was
// the last thing to run.
struct Made {
  std::optional<Graph> graph;  // where somebody asked for it
  std::optional<codegen::CompileReport> report;
  std::optional<Quantization> quantized;
  std::shared_ptr<const PrecisionReport> precision = nullptr;  // with --precision
};

struct CompileJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  const codegen::CompileOptions& options;
  std::string stop_after;
  bool wants_graph = false;
  const QuantizeJob* quantize = nullptr;  // null: computed in float
};
// Library and header appear in `folder`.
absl::StatusOr<Made> CompileThere(const CompileJob& job, const std::filesystem::path& folder,
                                  const StepContext& context);

absl::StatusOr<analyser::ModelReport> AnalyseThere(const GatewayOptions& gateway,
                                                   const ModelOptions& model,
                                                   const analyser::AnalyseOptions& options,
                                                   const StepContext& context);

struct VerifyJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  std::string library;
  analyser::VerifyOptions options;
  int opt_level = 3;  // of the build whose layers are compared
};
// As analyser::Verify, on the gateway's analyser: what has to be built for it is built there.
absl::StatusOr<analyser::VerifyReport> VerifyThere(const VerifyJob& job,
                                                   const StepContext& context);

// Import, passes and what follows of them at a gateway, up to a stage as `quench ir` names them.
struct ModuleJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  std::string stage = "canonical";
  std::vector<std::string> passes = {};  // run on that
};
absl::StatusOr<Graph> ModuleThere(const ModuleJob& job, const StepContext& context);

absl::StatusOr<analyser::ModuleFacts> IntrospectThere(const ModuleJob& job,
                                                      const analyser::NodesOptions& options,
                                                      const StepContext& context);

// `job` against what the same options make of the file `other`.
absl::StatusOr<analyser::ModuleDiff> DiffThere(const ModuleJob& job, const std::string& other,
                                               const StepContext& context);

struct PartitionJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  std::string backend;                 // of no meaning where parts go back
  std::vector<std::string> operators;  // of a list of the user's
  analyser::PartitionOptions options;
  bool inline_parts = false;
};
struct PartitionedThere {
  analyser::Partitioned partitioned;
  int64_t inlined = 0;  // parts that were put back
};
absl::StatusOr<PartitionedThere> PartitionThere(const PartitionJob& job,
                                                const StepContext& context);

struct TileJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  std::optional<std::array<int64_t, 3>> gemm;  // instead of the model: m, k, n
  analyser::TileLimits limits;
  analyser::TileProof proof;
};
absl::StatusOr<analyser::Tiled> TileThere(const TileJob& job, const StepContext& context);

// By the file and the array that a script names.
using EditFiles = std::map<std::pair<std::string, std::string>, Tensor>;
struct EditJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  const std::string& script;
  const EditFiles& files;
};
absl::StatusOr<analyser::Edited> EditThere(const EditJob& job, const StepContext& context);

struct InferJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  const InputSources& sources;
  const analyser::InferOptions& options;
  std::string target;     // empty: the interpreter
  std::string save;       // a folder that values go to, or empty
  bool pictures = false;  // there too
  std::string device = {};
};
absl::StatusOr<analyser::InferReport> InferThere(const InferJob& job, const StepContext& context);

struct BenchJob {
  const GatewayOptions& gateway;
  std::string library;
  int threads = 1;
  double seconds = 3;
  std::map<std::string, int64_t> sizes;
  uint64_t seed = 1;
  std::string device = {};
};
// As Benchmark, on the gateway's analyser.
absl::StatusOr<BenchResult> BenchThere(const BenchJob& job, const StepContext& context);

struct CalibrateJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  const RescueFlags& rescue;
  const SampleOptions& samples;
  std::string device = {};
  bool use_cuda = false;  // on a GPU if the quantizer has one
};
// `ran_on` as of CalibrateHere.
absl::StatusOr<quantizer::Statistics> CalibrateThere(const CalibrateJob& job,
                                                     const StepContext& context,
                                                     std::string* ran_on);

struct QuantizeModelJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;
  const QuantizeJob& quantize;
};
absl::StatusOr<QuantizedModel> QuantizeThere(const QuantizeModelJob& job,
                                             const StepContext& context);

struct CompareJob {
  const GatewayOptions& gateway;
  const ModelOptions& model;  // the reference: a model, a module or a library
  std::string other;
  SampleOptions samples;
  analyser::CompareOptions options;
  bool expected_files = false;  // the reference is files of outputs
};
// As analyser::Compare; what is no library yet is compiled there, for the analyser's CPU.
absl::StatusOr<analyser::CompareReport> CompareThere(const CompareJob& job,
                                                     const StepContext& context);

enum class FleetVerb { kCompile, kWatch, kList, kGet, kCancel, kRetry };
struct FleetJob {
  GatewayOptions gateway;
  FleetVerb verb = FleetVerb::kList;
  std::string id;  // "" for a new one
  std::vector<std::string> models, targets, options, labels, webhooks;
  bool webhook_steps = false;
  int64_t batch = 0;
  int priority = -10;
  std::string output, table;
  bool detach = false, dry_run = false;
  std::string tenant;  // whose fleets; "": the caller's, `-`: all
  int limit = 50;
  std::string format = "text";
};
// Prints what it did. FAILED_PRECONDITION where cells of the fleet have failed.
absl::Status FleetThere(const FleetJob& job, const StepContext& context);

enum class WorkflowVerb {
  kCreate,
  kList,
  kGet,
  kWatch,
  kLogs,
  kDownload,
  kRetry,
  kCancel,
  kDelete
};
struct WorkflowJob {
  GatewayOptions gateway;
  WorkflowVerb verb = WorkflowVerb::kList;
  std::string spec, name, step, request_id, filter, order_by, output;
  std::vector<std::string> labels;
  std::optional<int> priority;
  bool validate_only = false, all = false;
  std::vector<std::string> states;
  std::string tenant;  // whose are listed; "": the caller's, `-`: all
  int limit = 50;
  bool watch = false, follow = false;
  std::string format = "text";
};
// Prints what it did.
absl::Status WorkflowThere(const WorkflowJob& job, const StepContext& context);

struct TenantJob {
  GatewayOptions gateway;
  std::string tenant;  // "": all that the caller may see
  std::string format = "text";
};
// Prints what tenants use of the gateway.
absl::Status TenantUsageThere(const TenantJob& job, const StepContext& context);

// Prints digest and size of each file.
absl::Status PutThere(const GatewayOptions& gateway, const std::vector<std::string>& files,
                      bool json, const StepContext& context);
// Uploads samples and the manifest that names them; prints the manifest's digest and size, which
// workflows name. `labels` is a file, or empty.
absl::Status PutSamplesThere(const GatewayOptions& gateway, const std::string& data,
                             const std::string& labels, bool json, const StepContext& context);
// `digest` is HASH/SIZE.
absl::Status GetThere(const GatewayOptions& gateway, const std::string& digest,
                      const std::string& output, const StepContext& context);

// Called before work for a gateway that must not be done twice, such as asking for a password: the status
// with which `quench` lets quench-remote go on.
absl::Status BeginThere();

// Another program of Quench, beside this one, goes on with these arguments once the command has returned
// the status that this gives, ABORTED, and has let go of what it holds: temporary folders above all.
// UNAVAILABLE: the program is not there, and how to build it.
absl::Status Become(const std::string& program, const std::vector<std::string>& arguments);
// Starts what Become was asked for in place of this process; OK if it was not. Comes back only with an
// error.
absl::Status StartSuccessor();

}  // namespace quench::cli
