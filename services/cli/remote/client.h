// A gateway as the commands use it: blobs up, a workflow, blobs down.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/blobs/blob_store.h"
#include "services/cli/gateway_options.h"

namespace quench::gateway::v1 {
enum State : int;
class Tenant;
class Workflow;
class WorkflowSpec;
}  // namespace quench::gateway::v1
namespace build::bazel::remote::execution::v2 {
class Digest;
}
namespace quench::rpc {
class Channel;
}

namespace quench::cli {

using Digest = build::bazel::remote::execution::v2::Digest;

// A list of workflows that is asked for.
struct WorkflowList {
  std::vector<std::string> states = {};    // by name (queued, running, ...), none: all
  std::string filter = "", order_by = "";  // as ListWorkflowsRequest has them
  int limit = 1000;
  std::string tenant = "";  // "": the caller's, `-`: all
};

class GatewayClient {
 public:
  // UNAVAILABLE where nobody answers for 5 s; calls of the client have more patience.
  // `local` holds copies of what comes down, and modules that go up.
  static absl::StatusOr<std::unique_ptr<GatewayClient>> Open(const GatewayOptions& options,
                                                             std::shared_ptr<LocalBlobStore> local,
                                                             const StepContext& context);
  virtual ~GatewayClient() = default;

  LocalBlobStore& local() { return *local_; }
  // How long transfers, and calls that may be repeated, are tried while the gateway is away: a minute, unless this is
  // called before them.
  virtual void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  // For services that have clients of their own.
  virtual std::shared_ptr<rpc::Channel> channel() const = 0;

  // Uploads what the gateway lacks of files, in order, from where they lie. ABORTED when they change
  // meanwhile.
  virtual absl::StatusOr<std::vector<Digest>> UploadFiles(
      const std::vector<std::filesystem::path>& paths, const StepContext& context) = 0;
  // Uploads what the gateway lacks of blobs of the local store.
  virtual absl::Status UploadBlobs(const std::vector<BlobId>& blobs,
                                   const StepContext& context) = 0;
  // Into the local store.
  virtual absl::Status Download(const std::vector<Digest>& digests, const StepContext& context) = 0;
  absl::StatusOr<std::string> DownloadBytes(const Digest& digest, const StepContext& context);
  // From the gateway, unless the local store has it, to its place: a file of the user's need not lie
  // in the store too. It appears whole or not at all.
  virtual absl::Status DownloadFile(const Digest& digest, const std::filesystem::path& path,
                                    const StepContext& context) = 0;

  // Whether the file holds these bytes; hashes of files that have not changed are remembered.
  virtual bool Holds(const std::filesystem::path& path, const Digest& digest,
                     const StepContext& context) = 0;

  // `request_id` makes it safe to repeat; "" draws one. Gives `workflows/{id}`.
  virtual absl::StatusOr<std::string> Create(const gateway::v1::WorkflowSpec& spec,
                                             const std::string& request_id,
                                             const StepContext& context) = 0;
  // Steps of the workflow that this would become; the errors are those of Create.
  virtual absl::StatusOr<int> Validate(const gateway::v1::WorkflowSpec& spec,
                                       const StepContext& context) = 0;
  virtual absl::StatusOr<gateway::v1::Workflow> Get(const std::string& name,
                                                    const StepContext& context) = 0;
  virtual absl::StatusOr<std::vector<gateway::v1::Workflow>> List(const WorkflowList& list,
                                                                  const StepContext& context) = 0;
  // The use of the gateway by this tenant, or, with "", by all that the caller may see.
  virtual absl::StatusOr<std::vector<gateway::v1::Tenant>> Tenants(const std::string& tenant,
                                                                   const StepContext& context) = 0;
  // Until it has ended; `context` is told how far its steps are. A broken connection is taken up
  // again. Does not cancel the workflow when `context` is cancelled.
  virtual absl::StatusOr<gateway::v1::Workflow> Watch(const std::string& name,
                                                      const StepContext& context) = 0;
  virtual absl::Status Retry(const std::string& name, const StepContext& context) = 0;
  virtual absl::Status Cancel(const std::string& name) = 0;
  virtual absl::Status Delete(const std::string& name, const StepContext& context) = 0;

  // Create and Watch, by the options' rule for the cache; cancels the workflow if `context` is cancelled. An error if it failed.
  absl::StatusOr<gateway::v1::Workflow> Run(const gateway::v1::WorkflowSpec& spec,
                                            const StepContext& context);

 protected:
  GatewayClient(std::shared_ptr<LocalBlobStore> local, bool refresh)
      : local_(std::move(local)), refresh_(refresh) {}
  std::shared_ptr<LocalBlobStore> local_;
  const bool refresh_;
  std::chrono::milliseconds patience_{60'000};
};

// The output of a step that has succeeded; INTERNAL when the workflow has none of that name.
absl::StatusOr<Digest> OutputOf(const gateway::v1::Workflow& workflow, const std::string& step,
                                const std::string& output);

bool HasEnded(gateway::v1::State state);

// `workflows/ID` from what users type: that, `operations/ID` or ID alone.
std::string WorkflowNameOf(const std::string& text);

}  // namespace quench::cli
