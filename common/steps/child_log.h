// The stderr of a step's process, in the log of its service and in the step's progress.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/context.h"

namespace quench::steps {

// Its model may have taken over the process, so its lines are made printable, marked as its own, and limited: it can
// neither forge the service's lines nor fill its disk. Bytes beyond the bound are read and dropped.
class ChildLog {
 public:
  static constexpr int64_t kMostBytes = 64 << 10;
  static constexpr size_t kLongestLine = 2 << 10;
  // Limits of what Latest gives.
  static constexpr size_t kLatestLines = 20, kLongestLatest = 512;

  // `before`: the lines of an earlier process of the step, which these follow; may be null.
  ChildLog(std::string request_id, std::shared_ptr<const WrittenLines> before)
      : request_id_(std::move(request_id)), lines_(std::move(before)) {}
  // Reads the available bytes of `fd`, which does not block.
  void Drain(int fd);
  // Writes an unfinished last line, and the number of dropped bytes.
  void Finish();
  // Printable; null: there are none.
  std::shared_ptr<const WrittenLines> lines() const { return lines_; }

 private:
  void Take(char c);
  void EndLine();

  const std::string request_id_;
  std::string line_;
  int64_t taken_ = 0, dropped_ = 0;
  std::shared_ptr<const WrittenLines> lines_;
};

}  // namespace quench::steps
