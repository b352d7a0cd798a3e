// The stderr of a step's process, in the log of its service.
#pragma once

#include <cstdint>
#include <string>

namespace quench::steps {

// Its model may have taken over the process, so its lines are made printable, marked as its own, and limited: it can
// neither forge the service's lines nor fill its disk. Bytes beyond the bound are read and dropped.
class ChildLog {
 public:
  static constexpr int64_t kMostBytes = 64 << 10;
  static constexpr size_t kLongestLine = 2 << 10;

  explicit ChildLog(std::string request_id) : request_id_(std::move(request_id)) {}
  // Reads the available bytes of `fd`, which does not block.
  void Drain(int fd);
  // Writes an unfinished last line, and the number of dropped bytes.
  void Finish();

 private:
  void Take(char c);
  void EndLine();

  const std::string request_id_;
  std::string line_;
  int64_t taken_ = 0, dropped_ = 0;
};

}  // namespace quench::steps
