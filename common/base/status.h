// Errors. Every fallible function returns absl::Status or absl::StatusOr; Quench throws nothing.
//
// Messages read like ``node `conv1`: weight has rank 3, Conv takes 4``: lower case, no full stop,
// names in backticks, what was found, then the rule. The user's fault is a Status, ours is
// QUENCH_CHECK.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace quench {

// Prefixes the message with `context` and ": ", keeping the code and what else the status carries.
// OK stays OK.
absl::Status Annotate(const absl::Status& status, const std::string& context);

template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status Unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return absl::UnimplementedError(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return absl::InternalError(fmt::format(format, std::forward<Args>(args)...));
}

// The text of a status without its code, as shown to users.
std::string MessageOf(const absl::Status& status);

// Collects problems of one kind so that all are reported at once. Keeps the first code and at most
// `limit` messages ("... and 12 more").
class StatusCollector {
 public:
  explicit StatusCollector(size_t limit = 20) : limit_(limit) {}
  void Add(const absl::Status& status);
  bool ok() const { return count_ == 0; }
  absl::Status Finish() const;

 private:
  size_t limit_;
  size_t count_ = 0;
  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::vector<std::string> messages_;
};

// Prints the failed condition with file and line and aborts: a defect of Quench, never of its
// input.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace quench

#define QUENCH_CHECK(condition)                                              \
  do {                                                                       \
    if (!(condition)) ::quench::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

#define QUENCH_CONCAT_INNER(a, b) a##b
#define QUENCH_CONCAT(a, b) QUENCH_CONCAT_INNER(a, b)

#define QUENCH_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::absl::Status quench_status_ = (expr);          \
    if (!quench_status_.ok()) return quench_status_; \
  } while (false)

#define QUENCH_ASSIGN_OR_RETURN(lhs, expr) \
  QUENCH_ASSIGN_OR_RETURN_IMPL(QUENCH_CONCAT(quench_or_, __LINE__), lhs, expr)
#define QUENCH_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return std::move(tmp).status();     \
  lhs = *std::move(tmp)
