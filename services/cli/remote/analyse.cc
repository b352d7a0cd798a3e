#include "common/base/status.h"
#include "services/analyser/report_proto.h"
#include "services/cli/local_store.h"
#include "services/cli/remote.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"

namespace quench::cli {

namespace v1 = ::quench::gateway::v1;

absl::StatusOr<analyser::ModelReport> AnalyseThere(const GatewayOptions& gateway,
                                                   const ModelOptions& model,
                                                   const analyser::AnalyseOptions& options,
                                                   const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<LocalBlobStore> store, OpenStore());
  QUENCH_ASSIGN_OR_RETURN(const auto client, GatewayClient::Open(gateway, store, context));
  v1::WorkflowSpec spec;
  v1::AnalyseBatch& batch = *spec.mutable_analyse();
  QUENCH_ASSIGN_OR_RETURN(*batch.add_models(), UploadModel(model, *client, context));
  for (const auto& [symbol, size] : options.sizes) {
    step::v1::SymbolSize* added = batch.add_sizes();
    added->set_symbol(symbol);
    added->set_size(size);
  }
  batch.set_batch(model.batch);
  batch.set_weight_statistics(options.weight_statistics);
  if (options.ceilings) *batch.mutable_ceilings() = analyser::ToProto(*options.ceilings);
  const std::string step = batch.models(0).name() + "/analyse";
  QUENCH_ASSIGN_OR_RETURN(const v1::Workflow workflow, RunModels(spec, *client, context));
  QUENCH_ASSIGN_OR_RETURN(const auto report, DownloadMessage<analyser::v1::ModelReport>(
                                                 workflow, step, "report", *client, context));
  return analyser::FromProto(report);
}

}  // namespace quench::cli
