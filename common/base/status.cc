#include "common/base/status.h"

#include <absl/strings/cord.h>

#include <cstdio>
#include <cstdlib>

namespace quench {

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), context + ": " + MessageOf(status));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    annotated.SetPayload(type, payload);
  });
  return annotated;
}

void StatusCollector::Add(const absl::Status& status) {
  if (status.ok()) return;
  if (count_++ == 0) code_ = status.code();
  if (messages_.size() < limit_) messages_.push_back(MessageOf(status));
}

absl::Status StatusCollector::Finish() const {
  if (count_ == 0) return absl::OkStatus();
  std::string text;
  for (const std::string& message : messages_) {
    if (!text.empty()) text += "\n";
    text += message;
  }
  if (count_ > messages_.size())
    text += fmt::format("\n... and {} more", count_ - messages_.size());
  return absl::Status(code_, text);
}

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace quench
