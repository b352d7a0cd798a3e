// A collector of OpenTelemetry in the test's process, and its spans.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/server.h"
#include "common/rpc/tracing.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace quench::testing {

struct CollectedSpan {
  opentelemetry::proto::trace::v1::Span span;
  std::string service;

  // As text, whatever its type.
  std::string Attribute(const std::string& key) const {
    for (const auto& each : span.attributes()) {
      if (each.key() != key) continue;
      if (each.value().has_string_value()) return each.value().string_value();
      if (each.value().has_int_value()) return std::to_string(each.value().int_value());
      if (each.value().has_bool_value()) return each.value().bool_value() ? "true" : "false";
      return std::to_string(each.value().double_value());
    }
    return "";
  }
  bool failed() const {
    return span.status().code() == opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR;
  }
};

class Collector final
    : public opentelemetry::proto::collector::trace::v1::TraceService::CallbackService {
 public:
  // At a free port, or at the one that an earlier one had.
  explicit Collector(int port = 0) {
    rpc::ServerOptions options;
    options.listen = "127.0.0.1:" + std::to_string(port);
    options.registry = &registry_;
    options.grace = std::chrono::milliseconds(0);
    auto server = rpc::Server::Start(options, {this});
    QUENCH_CHECK(server.ok());
    server_ = *std::move(server);
  }
  ~Collector() override { server_.reset(); }

  int port() const { return server_->port(); }
  std::string address() const { return server_->address(); }
  rpc::TracerOptions TracerOptions(metrics::Registry* registry) const {
    rpc::TracerOptions options;
    options.collector.address = address();
    options.service = "test";
    options.registry = registry;
    options.period = std::chrono::milliseconds(10);
    return options;
  }
  void Answer(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }

  std::vector<CollectedSpan> spans() const {
    const std::lock_guard lock(mutex_);
    return spans_;
  }
  std::vector<CollectedSpan> Named(const std::string& name) const {
    std::vector<CollectedSpan> named;
    for (const CollectedSpan& each : spans()) {
      if (each.span.name() == name) named.push_back(each);
    }
    return named;
  }
  // One of this name, with the default value if there is none.
  CollectedSpan Find(const std::string& name) const {
    const std::vector<CollectedSpan> named = Named(name);
    return named.empty() ? CollectedSpan{} : named.front();
  }

 private:
  grpc::ServerUnaryReactor* Export(
      grpc::CallbackServerContext* context,
      const opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest* request,
      opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const std::lock_guard lock(mutex_);
    if (status_.ok()) {
      for (const auto& origin : request->resource_spans()) {
        CollectedSpan collected;
        for (const auto& attribute : origin.resource().attributes()) {
          if (attribute.key() == "service.name")
            collected.service = attribute.value().string_value();
        }
        for (const auto& scope : origin.scope_spans()) {
          for (const auto& span : scope.spans()) {
            collected.span = span;
            spans_.push_back(collected);
          }
        }
      }
    }
    reactor->Finish(status_);
    return reactor;
  }

  metrics::Registry registry_;
  mutable std::mutex mutex_;
  grpc::Status status_;
  std::vector<CollectedSpan> spans_;
  std::unique_ptr<rpc::Server> server_;
};

// Whether `span` is below `parent`, in its trace.
inline bool IsBelow(const CollectedSpan& span, const CollectedSpan& parent) {
  return !span.span.trace_id().empty() && span.span.trace_id() == parent.span.trace_id() &&
         span.span.parent_span_id() == parent.span.span_id();
}

// Whether a bucket of this histogram has the trace as its exemplar.
inline bool HasExemplar(const metrics::Registry& registry, const std::string& histogram,
                        const std::string& trace_id) {
  std::istringstream lines(registry.OpenMetrics());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(histogram + "_bucket{") &&
        line.find(" # {trace_id=\"" + trace_id + "\"} ") != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace quench::testing
