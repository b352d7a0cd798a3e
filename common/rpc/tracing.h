// Spans of traces, for a collector of OpenTelemetry.
//
// Work for a trace takes a new span of it (Tracer::Begin), passes its traceparent on in the calls that it makes, and
// records the span when it is over. Recording never waits: spans queue, a thread exports them, and when the collector does
// not take them fast enough new ones are dropped and counted.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/trace_context.h"
#include "common/metrics/metrics.h"
#include "common/rpc/channel.h"

namespace opentelemetry::proto::collector::trace::v1 {
class ExportTraceServiceRequest;
}

namespace quench::rpc {

using Attribute = std::variant<std::string, int64_t, double, bool>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

struct Span {
  enum class Kind { kInternal, kServer, kClient };
  struct Event {
    std::string name;
    int64_t time_ns = 0;
    Attributes attributes;
  };

  TraceContext context;
  std::string parent_id;  // empty: the root of its trace
  std::string name;
  Kind kind = Kind::kInternal;
  int64_t start_ns = 0, end_ns = 0;  // Unix time
  Attributes attributes;
  std::vector<Event> events;
  bool failed = false;
  std::string error;  // if it failed; for people
};

// Unix time.
int64_t UnixNanoseconds();

struct TracerOptions {
  ChannelOptions collector;
  double sample_ratio = 1;  // of traces that begin here
  std::string service;      // `service.name`
  size_t queue = 8192;      // spans that wait; more are dropped
  std::chrono::milliseconds period{1000};
  std::chrono::milliseconds timeout{5000};           // of one export
  metrics::Registry* registry = &metrics::Global();  // not owned
};

class Tracer {
 public:
  // Does not connect yet. INVALID_ARGUMENT for wrong options.
  static absl::StatusOr<std::unique_ptr<Tracer>> Start(const TracerOptions& options);
  // Exports what waits, if the collector takes it within the timeout.
  ~Tracer();

  // A span below the one that `traceparent` names; without one, the root of a new trace.
  TraceContext Begin(const std::string& traceparent) const;
  // Never waits. Does nothing for spans that are not sampled.
  void Record(Span span);
  // Exports what waits, until the timeout of an export: before a server ends.
  void Flush();

 private:
  Tracer(const TracerOptions& options, std::shared_ptr<Channel> collector);
  void Run();
  enum class Outcome { kTaken, kRefused, kUnreached };
  Outcome Export(const std::vector<Span>& spans) const;
  void Fill(const std::vector<Span>& spans,
            opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest* request) const;
  void Count(metrics::SpanFate fate, size_t spans) const;

  const TracerOptions options_;
  const std::shared_ptr<Channel> collector_;
  const std::shared_ptr<CancelToken> cancel_ = std::make_shared<CancelToken>();
  const std::string instance_;
  std::mutex mutex_;
  std::condition_variable wake_, exported_;
  std::deque<Span> waiting_;
  bool stopping_ = false, unreached_ = false;
  int flushes_ = 0, flushed_ = 0;  // asked for, done
  std::thread thread_;             // last: it uses the others
};

}  // namespace quench::rpc
