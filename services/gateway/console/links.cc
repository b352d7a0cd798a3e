#include "services/gateway/console/links.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "common/base/status.h"

namespace quench::gateway {

std::string RandomWord() {
  std::array<unsigned char, 16> bytes{};
  QUENCH_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);  // a machine without randomness
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string Links::Add(Link link, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMost) entries_.pop_front();
  entries_.push_back({RandomWord(), std::move(link), now + kLife});
  return entries_.back().word;
}

std::optional<Link> Links::Find(const std::string& word, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  while (!entries_.empty() && entries_.front().end <= now) entries_.pop_front();
  const auto found =
      std::ranges::find_if(entries_, [&word](const Entry& entry) { return entry.word == word; });
  if (found == entries_.end()) return std::nullopt;
  return found->link;
}

std::string FileNameOf(const std::string& name) {
  constexpr size_t kLongest = 100;
  std::string safe = name.substr(name.rfind('/') + 1).substr(0, kLongest);
  for (char& c : safe) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  return safe.empty() || safe.front() == '.' ? "file" + safe : safe;
}

}  // namespace quench::gateway
