// One call on the server's side, apart from its messages: its caller, its context, and how it is counted
// and logged.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/context.h"
#include "common/base/trace_context.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_pool.h"
#include "common/rpc/metadata.h"

namespace grpc {
class CallbackServerContext;
}

namespace quench::rpc {

// Whether calls have lasting effects that others can see: such calls are audited, and not for viewers.
enum class Effect { kReads, kChanges };

// A method of a service: the pool for its calls, and its metrics, each looked up at its first use. It is
// a member of the service, which outlives its calls.
class Method {
 public:
  // `service` as in the proto: "quench.codegen.v1.Codegen".
  Method(CallPool& pool, const std::string& service, const std::string& name,
         metrics::GrpcType type, Effect effect = Effect::kReads);

  CallPool& pool() const { return pool_; }
  const std::string& full_name() const { return full_name_; }
  Effect effect() const { return effect_; }
  metrics::GrpcType type() const { return type_; }
  void CountStarted() const;
  void CountHandled(absl::StatusCode code, double seconds, const std::string& traceparent) const;

 private:
  CallPool& pool_;
  std::string full_name_;
  Effect effect_;
  const metrics::GrpcType type_;
  const metrics::GrpcService service_;
  const metrics::GrpcMethod name_;
  mutable std::atomic<metrics::Counter*> started_ = nullptr;
  mutable std::atomic<metrics::Histogram*> seconds_ = nullptr;
  mutable std::array<std::atomic<metrics::Counter*>, 17> handled_{};
};

class ServerCall {
 public:
  // Reads the caller's metadata; `request_id` is the request's own, if it has one.
  ServerCall(const Method& method, grpc::CallbackServerContext* context,
             const std::string& request_id);

  // Authenticates, then takes a slot. PERMISSION_DENIED for viewers who would change something.
  absl::Status Admit();
  // Gives the slot back. Called before the caller learns the outcome, so that its next call finds it free.
  void ReleaseSlot() { method_.pool().Release(client_); }
  // Ends the gRPC call, whatever is still being sent; called before End.
  void Break();

  // Sets the call's resource and its tenant for the audit; called before End.
  void SetResource(std::string resource, std::string tenant = "") {
    resource_ = std::move(resource);
    resource_tenant_ = std::move(tenant);
  }
  bool is_audited() const;

  // Sets the receiver of the handler's progress; called before Run.
  void SendProgressTo(ProgressSink sink);
  const std::string& request_id() const { return step_.request_id(); }
  // Called on gRPC's threads: the caller has gone or its deadline has passed.
  void Cancel() { cancel_->Cancel(); }

  // Runs `work` unless the caller has gone already; exceptions of libraries become INTERNAL.
  absl::Status Run(const std::function<absl::Status(const StepContext&)>& work);

  // Counts and logs the call's end, once, and gives the status for the wire.
  grpc::Status End(const absl::Status& status);

 private:
  void Audit(const absl::Status& outcome, double seconds) const;
  void Trace(const absl::Status& outcome) const;

  const Method& method_;
  grpc::CallbackServerContext* const context_;
  std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  std::shared_ptr<CancelToken> cancel_ = std::make_shared<CancelToken>();
  StepContext step_;
  TraceContext span_;      // the call's own, if its pool has a tracer
  std::string parent_id_;  // of its caller's span
  int64_t arrival_ns_ = 0;
  std::string authorization_;
  std::string peer_;
  std::vector<std::string> certificate_names_;
  std::string resource_, resource_tenant_;
  std::string subject_;  // of the caller's token
  std::string client_;   // whom the call's place counts for: the token's tenant, else a machine
  std::atomic<bool> ended_{false};
};

}  // namespace quench::rpc
