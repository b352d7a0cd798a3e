#include "common/steps/peak_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace quench::steps {

PeakMemory::PeakMemory() : status_(::open("/proc/self/status", O_RDONLY | O_CLOEXEC)) {}

PeakMemory::~PeakMemory() {
  if (status_ >= 0) ::close(status_);
}

int64_t PeakMemory::bytes() const {
  constexpr std::string_view kName = "VmHWM:";
  std::array<char, 4096> buffer{};
  const ssize_t size = ::pread(status_, buffer.data(), buffer.size(), 0);
  if (size <= 0) return 0;
  std::string_view text(buffer.data(), static_cast<size_t>(size));
  const size_t line = text.find(kName);
  if (line == std::string_view::npos) return 0;
  text.remove_prefix(line + kName.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t kibibytes = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), kibibytes);
  return kibibytes * 1024;
}

}  // namespace quench::steps
