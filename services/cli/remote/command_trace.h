// The span of a command that uses a gateway, for whoever traces what calls it.
#pragma once

#include <memory>
#include <string>

#include "common/rpc/tracing.h"

namespace quench::cli {

class CommandTrace {
 public:
  // Nothing unless $OTEL_EXPORTER_OTLP_ENDPOINT names a collector that takes OTLP by gRPC:
  // `http://HOST:PORT`, or https://. `traceparent` is the command's own (CommandTraceparent).
  static std::unique_ptr<CommandTrace> Begin(const std::string& traceparent);
  // Exports the span, if the collector takes it within a second.
  ~CommandTrace();

 private:
  CommandTrace(std::unique_ptr<rpc::Tracer> tracer, TraceContext context);
  const std::unique_ptr<rpc::Tracer> tracer_;
  const TraceContext context_;
  const int64_t start_ns_;
};

}  // namespace quench::cli
