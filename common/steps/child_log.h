// The stderr of a step's process, in the log of its service.
#pragma once

#include <cstdint>
#include <string>

namespace quench::steps {

// The process may be one that its model has taken over, so its lines are printable, marked as its own, and few:
// it can neither forge the service's lines nor fill its disk. Bytes beyond the bound are read and dropped.
class ChildLog {
 public:
  static constexpr int64_t kMostBytes = 64 << 10;
  static constexpr size_t kLongestLine = 2 << 10;

  explicit ChildLog(std::string request_id) : request_id_(std::move(request_id)) {}
  // Takes what there is of `fd`, which does not block.
  void Drain(int fd);
  // Writes the line that has no end, and how much was dropped.
  void Finish();

 private:
  void Take(char c);
  void EndLine();

  const std::string request_id_;
  std::string line_;
  int64_t taken_ = 0, dropped_ = 0;
};

}  // namespace quench::steps
