#include "common/rpc/errors.h"

#include <absl/strings/cord.h>
#include <fmt/format.h>
#include <grpcpp/support/status.h>

#include <algorithm>

#include "common/base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quench::rpc {
namespace {

constexpr char kDomain[] = "quench";
constexpr char kTypePrefix[] = "type.googleapis.com/";
// Shares of the 8 KiB that all trailers may take: grpc-message, in which a byte may become three,
// and the details in base64.
constexpr size_t kMessageBytes = 1000;
constexpr size_t kDetailsBytes = 3500;

struct Row {
  const char* name;
  absl::StatusCode code;
};
constexpr Row kReasons[] = {
#define QUENCH_REASON(name, text, code, meaning) {text, absl::StatusCode::code},
#include "common/rpc/reasons.def"
#undef QUENCH_REASON
};

template <typename Message>
std::string TypeUrl() {
  return kTypePrefix + Message::descriptor()->full_name();
}

// The detail of this type, or an empty one.
template <typename Message>
Message DetailOf(const absl::Status& status) {
  Message message;
  if (const auto payload = status.GetPayload(TypeUrl<Message>())) {
    message.ParseFromString(std::string(*payload));
  }
  return message;
}

template <typename Message>
absl::Status WithDetail(absl::Status status, const Message& message) {
  if (!status.ok())
    status.SetPayload(TypeUrl<Message>(),
                      absl::Cord(absl::string_view(message.SerializeAsString())));
  return status;
}

// At most `limit` bytes of UTF-8, ending at a character.
std::string Shortened(const std::string& text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " ...";
}

// Cuts a list of violations until the message has room for it.
template <typename Message, typename List>
std::string FittingViolations(Message message, List* (Message::*mutable_list)(), size_t room) {
  List* list = (message.*mutable_list)();
  while (list->size() > 0 && message.ByteSizeLong() > room) {
    list->DeleteSubrange(list->size() / 2, list->size() - list->size() / 2);
  }
  return list->empty() ? "" : message.SerializeAsString();
}

// Details in the order of their worth, as many as fit.
class Details {
 public:
  explicit Details(google::rpc::Status* out) : out_(out) {}
  size_t room() const {
    const size_t used = out_->ByteSizeLong() + 80;  // 80: type URL and lengths of one more
    return used < kDetailsBytes ? kDetailsBytes - used : 0;
  }
  void Add(const std::string& type_url, const std::string& value) {
    if (value.empty() || value.size() > room()) return;
    google::protobuf::Any* any = out_->add_details();
    any->set_type_url(type_url);
    any->set_value(value);
  }

 private:
  google::rpc::Status* out_;
};

}  // namespace

const char* ReasonName(Reason reason) { return kReasons[static_cast<size_t>(reason)].name; }

Reason DefaultReason(absl::StatusCode code) {
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    if (kReasons[i].code == code) return static_cast<Reason>(i);
  }
  return Reason::kUnknown;
}

absl::Status Error(Reason reason, const std::string& message) {
  return WithReason(absl::Status(kReasons[static_cast<size_t>(reason)].code, message), reason);
}

absl::Status WithReason(absl::Status status, Reason reason,
                        const std::map<std::string, std::string>& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonName(reason));
  info.set_domain(kDomain);
  info.mutable_metadata()->insert(metadata.begin(), metadata.end());
  return WithDetail(std::move(status), info);
}

absl::Status WithTrace(absl::Status status, const std::string& trace_id) {
  if (status.ok()) return status;
  auto info = DetailOf<google::rpc::ErrorInfo>(status);
  if (info.reason().empty()) {
    info.set_reason(ReasonName(DefaultReason(status.code())));
    info.set_domain(kDomain);
  }
  info.mutable_metadata()->insert({"trace_id", trace_id});
  return WithDetail(std::move(status), info);
}

absl::Status WithRetryAfter(absl::Status status, std::chrono::milliseconds delay) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.count() % 1000 * 1'000'000));
  return WithDetail(std::move(status), info);
}

absl::Status WithField(absl::Status status, const FieldViolation& violation) {
  auto request = DetailOf<google::rpc::BadRequest>(status);
  auto* added = request.add_field_violations();
  added->set_field(violation.field);
  added->set_description(violation.description);
  return WithDetail(std::move(status), request);
}

absl::Status WithPrecondition(absl::Status status, const PreconditionViolation& violation) {
  auto failure = DetailOf<google::rpc::PreconditionFailure>(status);
  auto* added = failure.add_violations();
  added->set_type(violation.type);
  added->set_subject(violation.subject);
  added->set_description(violation.description);
  return WithDetail(std::move(status), failure);
}

absl::Status WithQuota(absl::Status status, const QuotaViolation& violation) {
  auto failure = DetailOf<google::rpc::QuotaFailure>(status);
  auto* added = failure.add_violations();
  added->set_subject(violation.subject);
  added->set_description(violation.description);
  return WithDetail(std::move(status), failure);
}

absl::Status FieldError(const std::string& field, const std::string& what) {
  return WithField(InvalidArgument("{}: {}", field, what), {field, what});
}

std::string ReasonOf(const absl::Status& status) {
  return DetailOf<google::rpc::ErrorInfo>(status).reason();
}

std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  return {info.metadata().begin(), info.metadata().end()};
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status) {
  const auto info = DetailOf<google::rpc::RetryInfo>(status);
  if (!info.has_retry_delay()) return std::nullopt;
  constexpr int64_t kMostSeconds = int64_t{10'000} * 365 * 86'400;  // as protobuf's durations
  const int64_t seconds = std::clamp(info.retry_delay().seconds(), -kMostSeconds, kMostSeconds);
  return std::chrono::seconds(seconds) +
         std::chrono::milliseconds(info.retry_delay().nanos() / 1'000'000);
}

std::vector<FieldViolation> FieldsOf(const absl::Status& status) {
  std::vector<FieldViolation> fields;
  const auto request = DetailOf<google::rpc::BadRequest>(status);
  for (const auto& field : request.field_violations()) {
    fields.push_back({field.field(), field.description()});
  }
  return fields;
}

std::vector<PreconditionViolation> PreconditionsOf(const absl::Status& status) {
  std::vector<PreconditionViolation> violations;
  const auto failure = DetailOf<google::rpc::PreconditionFailure>(status);
  for (const auto& each : failure.violations()) {
    violations.push_back({each.type(), each.subject(), each.description()});
  }
  return violations;
}

std::vector<QuotaViolation> QuotasOf(const absl::Status& status) {
  const auto failure = DetailOf<google::rpc::QuotaFailure>(status);
  std::vector<QuotaViolation> violations;
  for (const auto& violation : failure.violations()) {
    violations.push_back({violation.subject(), violation.description()});
  }
  return violations;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  if (ReasonOf(status).empty()) return ToGrpc(WithReason(status, DefaultReason(status.code())));
  const std::string message = Shortened(MessageOf(status), kMessageBytes);
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(status.code()));
  rich.set_message(message);
  Details details(&rich);
  using google::rpc::BadRequest, google::rpc::ErrorInfo, google::rpc::RetryInfo,
      google::rpc::PreconditionFailure, google::rpc::QuotaFailure;
  for (const std::string& url :
       {TypeUrl<ErrorInfo>(), TypeUrl<RetryInfo>(), TypeUrl<QuotaFailure>()}) {
    if (const auto payload = status.GetPayload(url)) details.Add(url, std::string(*payload));
  }
  details.Add(TypeUrl<PreconditionFailure>(),
              FittingViolations(DetailOf<PreconditionFailure>(status),
                                &PreconditionFailure::mutable_violations, details.room()));
  details.Add(TypeUrl<BadRequest>(),
              FittingViolations(DetailOf<BadRequest>(status), &BadRequest::mutable_field_violations,
                                details.room()));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message,
                      rich.SerializeAsString());
}

google::rpc::Status ToProto(const absl::Status& status) {
  google::rpc::Status message;
  message.set_code(static_cast<int>(status.code()));
  message.set_message(MessageOf(status));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    google::protobuf::Any* any = message.add_details();
    any->set_type_url(std::string(type.data(), type.size()));
    any->set_value(std::string(payload));
  });
  return message;
}

absl::Status FromProto(const google::rpc::Status& message) {
  absl::Status status(static_cast<absl::StatusCode>(message.code()), message.message());
  for (const google::protobuf::Any& detail : message.details()) {
    status.SetPayload(detail.type_url(), absl::Cord(absl::string_view(detail.value())));
  }
  return status;
}

// The message without what the library that resolves names says of its own insides.
static std::string Readable(const std::string& message) {
  static constexpr std::string_view kUnresolved = "DNS resolution failed for ";
  if (!message.starts_with(kUnresolved)) return message;
  std::string host = message.substr(kUnresolved.size());
  host.resize(std::min(host.find(": "), host.size()));
  host.resize(std::min(host.rfind(':'), host.size()));  // the port
  return fmt::format("cannot resolve host `{}`", host);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status rich;
  if (!rich.ParseFromString(status.error_details())) rich.Clear();
  rich.set_code(status.error_code());
  rich.set_message(Readable(status.error_message()));
  return FromProto(rich);
}

}  // namespace quench::rpc
