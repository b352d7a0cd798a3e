// The audit log: a line for every call that changes something, whether it succeeded or not.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

namespace spdlog {
class logger;
}

namespace quench::rpc {

struct AuditEntry {
  std::string call;         // quench.gateway.v1.Workflows/CreateWorkflow
  std::string caller;       // the tenant of token or certificate; "" if none is required
  std::string role;         // viewer, user, operator; "" without a caller
  std::string subject;      // of the caller's signed token
  std::string certificate;  // names of the caller's certificate
  std::string tenant;       // the tenant the call acts for, if it is another one
  std::string resource;     // workflows/ID, blobs/HASH/SIZE, the key of a step
  std::string peer, request_id;
  std::string code, reason;  // outcome of the call
  double seconds = 0;
};

// Thread-safe.
class AuditLog {
 public:
  // Writes to the file, one JSON object per line, mode 0600; if the file is renamed, a new one is
  // begun. If `file` is empty, writes to this process's log, at any level, with the prefix `audit`.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::filesystem::path& file);
  ~AuditLog();

  void Write(const AuditEntry& entry);

 private:
  explicit AuditLog(std::filesystem::path file);
  absl::Status Reopen();
  absl::Status Append(const std::string& line);

  const std::filesystem::path file_;
  const std::shared_ptr<spdlog::logger> log_;  // without a file
  std::mutex mutex_;
  int fd_ = -1;
};

}  // namespace quench::rpc
