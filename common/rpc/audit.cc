#include "common/rpc/audit.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::rpc {
namespace {

std::string Now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%FT%T", &utc);
  const auto part = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("{}.{:03}Z", text.data(), part.count() % 1000);
}

std::string LineOf(const AuditEntry& entry) {
  nlohmann::ordered_json line;
  line["time"] = Now();
  line["call"] = entry.call;
  for (const auto& [name, value] : {std::pair{"caller", &entry.caller},
                                    {"role", &entry.role},
                                    {"subject", &entry.subject},
                                    {"certificate", &entry.certificate},
                                    {"tenant", &entry.tenant},
                                    {"peer", &entry.peer},
                                    {"resource", &entry.resource},
                                    {"code", &entry.code},
                                    {"reason", &entry.reason},
                                    {"request", &entry.request_id}}) {
    if (!value->empty()) line[name] = *value;
  }
  line["seconds"] = entry.seconds;
  // Callers have a say in names: what is not UTF-8 becomes a replacement character.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// The process's log, at a level of its own.
std::shared_ptr<spdlog::logger> OwnLogger() {
  const auto& sinks = spdlog::default_logger()->sinks();
  auto logger = std::make_shared<spdlog::logger>("audit", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::info);
  return logger;
}

}  // namespace

AuditLog::AuditLog(std::filesystem::path file)
    : file_(std::move(file)), log_(file_.empty() ? OwnLogger() : nullptr) {}

AuditLog::~AuditLog() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::filesystem::path& file) {
  std::unique_ptr<AuditLog> log(new AuditLog(file));
  if (!file.empty()) QUENCH_RETURN_IF_ERROR(log->Reopen());
  return log;
}

absl::Status AuditLog::Reopen() {
  struct stat there{}, open{};
  if (fd_ >= 0 && ::stat(file_.c_str(), &there) == 0 && ::fstat(fd_, &open) == 0 &&
      there.st_ino == open.st_ino && there.st_dev == open.st_dev) {
    return absl::OkStatus();
  }
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  fd_ = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  return fd_ >= 0 ? absl::OkStatus() : ErrnoStatus(errno, "open", file_);
}

absl::Status AuditLog::Append(const std::string& line) {
  const std::lock_guard lock(mutex_);
  QUENCH_RETURN_IF_ERROR(Reopen());
  // In one write, so that lines of several processes do not mix.
  const ssize_t written = ::write(fd_, line.data(), line.size());
  if (written < 0) return ErrnoStatus(errno, "write to", file_);
  if (static_cast<size_t>(written) < line.size()) return ErrnoStatus(ENOSPC, "write to", file_);
  return absl::OkStatus();
}

void AuditLog::Write(const AuditEntry& entry) {
  const std::string line = LineOf(entry);
  if (log_ != nullptr) return log_->info("audit {}", line);
  if (const absl::Status status = Append(line + "\n"); !status.ok()) {
    spdlog::error("audit {} {}", line, MessageOf(status));
  }
}

}  // namespace quench::rpc
