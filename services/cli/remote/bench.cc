#include <google/protobuf/util/time_util.h>

#include <cmath>

#include "common/base/status.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "services/cli/remote/steps.h"

namespace quench::cli {
namespace {

using google::protobuf::util::TimeUtil;

double Milliseconds(const google::protobuf::Duration& time) {
  return static_cast<double>(TimeUtil::DurationToNanoseconds(time)) / 1e6;
}

}  // namespace

absl::StatusOr<BenchResult> BenchThere(const BenchJob& job, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(job.gateway, store, context));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<Digest> library,
                          client->UploadFiles({job.library}, context));
  gateway::v1::WorkflowSpec spec;
  analyser::v1::BenchmarkRequest* request = AddStep(spec, "benchmark")->mutable_benchmark();
  *request->mutable_library() = library[0];
  request->set_device(job.device);
  analyser::v1::BenchmarkOptions* options = request->mutable_options();
  options->set_threads(job.threads);
  options->set_seed(job.seed);
  *options->mutable_time() = TimeUtil::NanosecondsToDuration(std::llround(job.seconds * 1e9));
  for (const auto& [symbol, size] : job.sizes) {
    step::v1::SymbolSize* added = options->add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  QUENCH_ASSIGN_OR_RETURN(const gateway::v1::Workflow workflow, client->Run(spec, context));
  QUENCH_ASSIGN_OR_RETURN(const auto measured,
                          DownloadMessage<analyser::v1::BenchmarkResult>(
                              workflow, "benchmark", "result", *client, context));
  BenchResult result;
  result.median_ms = Milliseconds(measured.median());
  result.min_ms = Milliseconds(measured.min());
  result.p99_ms = Milliseconds(measured.p99());
  result.load_ms = Milliseconds(measured.load());
  result.first_run_ms = Milliseconds(measured.first_run());
  result.arena_bytes = measured.arena_bytes();
  result.arena_lower_bound = measured.arena_lower_bound_bytes();
  result.runs = measured.runs();
  result.threads = measured.threads();
  result.variant = measured.variant();
  result.device = measured.device().empty() ? "cpu" : measured.device();  // "": of an older gateway
  for (const step::v1::SymbolSize& size : measured.sizes())
    result.sizes[size.symbol()] = size.size();
  result.batch = measured.batch();
  result.lower_quartile_ms = Milliseconds(measured.lower_quartile());
  result.upper_quartile_ms = Milliseconds(measured.upper_quartile());
  result.cores = measured.cores();
  result.taken_cores = measured.taken_cores();
  return result;
}

}  // namespace quench::cli
