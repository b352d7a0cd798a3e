#include "common/steps/child_log.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/base/printable.h"

namespace quench::steps {

void ChildLog::Drain(int fd) {
  std::array<char, 4096> chunk;
  while (true) {
    const ssize_t count = ::read(fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    for (ssize_t i = 0; i < count; ++i) Take(chunk[static_cast<size_t>(i)]);
  }
}

void ChildLog::Take(char c) {
  if (taken_ >= kMostBytes) {
    ++dropped_;
    return;
  }
  ++taken_;
  if (c == '\n') {
    EndLine();
  } else {
    line_ += c;
    if (line_.size() >= kLongestLine) EndLine();
  }
}

void ChildLog::EndLine() {
  if (line_.empty()) return;
  spdlog::warn("step {} says: {}", request_id_, Printable(line_));
  auto lines = lines_ == nullptr ? std::make_shared<WrittenLines>()
                                 : std::make_shared<WrittenLines>(*lines_);
  ++lines->count;
  if (lines->latest.size() == kLatestLines) lines->latest.erase(lines->latest.begin());
  lines->latest.push_back(Printable(line_.substr(0, kLongestLatest)));
  lines_ = std::move(lines);
  line_.clear();
}

void ChildLog::Finish() {
  EndLine();
  if (dropped_ > 0) spdlog::warn("step {} says {} bytes more", request_id_, dropped_);
  dropped_ = 0;
}

}  // namespace quench::steps
