#include "common/rpc/tracing.h"

#include <absl/strings/escaping.h>
#include <grpcpp/channel.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/build_id.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/retry.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace quench::rpc {
namespace {

namespace otlp = opentelemetry::proto;
using otlp::collector::trace::v1::ExportTraceServiceRequest;
using otlp::collector::trace::v1::ExportTraceServiceResponse;
using otlp::collector::trace::v1::TraceService;

constexpr size_t kSpansOfExport = 512;
constexpr size_t kLongestText = 1024;  // of an attribute or error

using KeyValues = google::protobuf::RepeatedPtrField<otlp::common::v1::KeyValue>;

std::string CutText(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  size_t end = kLongestText;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void AddAttributes(const Attributes& attributes, KeyValues* out) {
  for (const auto& [key, value] : attributes) {
    otlp::common::v1::KeyValue* added = out->Add();
    added->set_key(key);
    if (const auto* text = std::get_if<std::string>(&value)) {
      added->mutable_value()->set_string_value(CutText(*text));
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      added->mutable_value()->set_int_value(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      added->mutable_value()->set_double_value(*number);
    } else {
      added->mutable_value()->set_bool_value(std::get<bool>(value));
    }
  }
}

std::string BytesOfHex(const std::string& hex) { return absl::HexStringToBytes(hex); }

void FillSpan(const Span& span, otlp::trace::v1::Span* out) {
  constexpr uint32_t kSampled = 1;
  out->set_trace_id(BytesOfHex(span.context.trace_id));
  out->set_span_id(BytesOfHex(span.context.span_id));
  out->set_parent_span_id(BytesOfHex(span.parent_id));
  out->set_flags(kSampled);
  out->set_name(span.name);
  out->set_kind(span.kind == Span::Kind::kServer   ? otlp::trace::v1::Span::SPAN_KIND_SERVER
                : span.kind == Span::Kind::kClient ? otlp::trace::v1::Span::SPAN_KIND_CLIENT
                                                   : otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
  out->set_start_time_unix_nano(static_cast<uint64_t>(span.start_ns));
  out->set_end_time_unix_nano(static_cast<uint64_t>(std::max(span.start_ns, span.end_ns)));
  AddAttributes(span.attributes, out->mutable_attributes());
  for (const Span::Event& event : span.events) {
    otlp::trace::v1::Span::Event* added = out->add_events();
    added->set_name(event.name);
    added->set_time_unix_nano(static_cast<uint64_t>(event.time_ns));
    AddAttributes(event.attributes, added->mutable_attributes());
  }
  if (span.failed) {
    out->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
    out->mutable_status()->set_message(CutText(span.error));
  }
}

std::string ThisInstance() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}/{}", host.data(), ::getpid());
}

}  // namespace

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::StatusOr<std::unique_ptr<Tracer>> Tracer::Start(const TracerOptions& options) {
  if (!(options.sample_ratio >= 0 && options.sample_ratio <= 1)) {
    return InvalidArgument("sample_ratio: {}, must be from 0 to 1", options.sample_ratio);
  }
  ChannelOptions collector = options.collector;
  collector.attempts = 1;  // the next export is the next attempt
  QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel, Channel::Open(collector));
  std::unique_ptr<Tracer> tracer(new Tracer(options, std::move(channel)));
  tracer->thread_ = std::thread([raw = tracer.get()] { raw->Run(); });
  return tracer;
}

Tracer::Tracer(const TracerOptions& options, std::shared_ptr<Channel> collector)
    : options_(options), collector_(std::move(collector)), instance_(ThisInstance()) {}

Tracer::~Tracer() {
  Flush();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  cancel_->Cancel();
  wake_.notify_all();
  thread_.join();
  Count(metrics::SpanFate::kDropped, waiting_.size());
}

TraceContext Tracer::Begin(const std::string& traceparent) const {
  return NewSpan(ParseTraceparent(traceparent), options_.sample_ratio);
}

void Tracer::Record(Span span) {
  if (!span.context.sampled) return;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < options_.queue) {
      waiting_.push_back(std::move(span));
      return;  // the thread looks by itself
    }
  }
  Count(metrics::SpanFate::kDropped, 1);
}

void Tracer::Flush() {
  std::unique_lock lock(mutex_);
  const int asked = ++flushes_;
  wake_.notify_all();
  exported_.wait_for(lock, options_.timeout, [&] { return flushed_ >= asked; });
}

void Tracer::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, options_.period, [this] { return stopping_ || flushed_ < flushes_; });
    const int asked = flushes_;
    bool goes_on = true;
    while (goes_on && !waiting_.empty() && !stopping_) {
      const size_t count = std::min(kSpansOfExport, waiting_.size());
      const std::vector<Span> batch(waiting_.begin(),
                                    waiting_.begin() + static_cast<ptrdiff_t>(count));
      lock.unlock();
      const Outcome outcome = Export(batch);
      lock.lock();
      goes_on = outcome != Outcome::kUnreached;  // they stay, until there is no room for others
      if (outcome == Outcome::kUnreached) {
        if (!std::exchange(unreached_, true)) {
          spdlog::warn("traces: the collector at `{}` cannot be reached",
                       options_.collector.address);
        }
        continue;
      }
      unreached_ = false;
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
    }
    flushed_ = asked;
    exported_.notify_all();
  }
}

Tracer::Outcome Tracer::Export(const std::vector<Span>& spans) const {
  ExportTraceServiceRequest request;
  Fill(spans, &request);
  StepContext context(cancel_, {});
  context.set_deadline(std::chrono::steady_clock::now() + options_.timeout);
  ClientCall call(*collector_, context);
  ExportTraceServiceResponse response;
  const absl::Status status = FromGrpc(
      TraceService::NewStub(collector_->grpc())->Export(call.context(), request, &response));
  if (IsTransient(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status)) {
    return Outcome::kUnreached;
  }
  if (!status.ok()) {
    spdlog::warn("traces: the collector refuses {} spans: {}", spans.size(), MessageOf(status));
    Count(metrics::SpanFate::kDropped, spans.size());
    return Outcome::kRefused;
  }
  const size_t rejected = static_cast<size_t>(std::clamp<int64_t>(
      response.partial_success().rejected_spans(), 0, static_cast<int64_t>(spans.size())));
  Count(metrics::SpanFate::kDropped, rejected);
  Count(metrics::SpanFate::kExported, spans.size() - rejected);
  return Outcome::kTaken;
}

void Tracer::Fill(const std::vector<Span>& spans, ExportTraceServiceRequest* request) const {
  otlp::trace::v1::ResourceSpans* of_this = request->add_resource_spans();
  AddAttributes({{"service.name", options_.service},
                 {"service.namespace", std::string("quench")},
                 {"service.version", BuildId()},
                 {"service.instance.id", instance_}},
                of_this->mutable_resource()->mutable_attributes());
  otlp::trace::v1::ScopeSpans* scope = of_this->add_scope_spans();
  scope->mutable_scope()->set_name("quench");
  for (const Span& span : spans) FillSpan(span, scope->add_spans());
}

void Tracer::Count(metrics::SpanFate fate, size_t spans) const {
  options_.registry->Get(metrics::kSpans, fate).Increment(static_cast<double>(spans));
}

}  // namespace quench::rpc
