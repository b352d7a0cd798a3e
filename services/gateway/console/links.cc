#include "services/gateway/console/links.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/tenants.h"

namespace quench::gateway {

std::string RandomWord() {
  std::array<unsigned char, 16> bytes{};
  QUENCH_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);  // a machine without randomness
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

void Links::RemoveEnded(Clock::time_point now) {
  while (!entries_.empty() && entries_.front().end <= now) entries_.pop_front();
}

absl::StatusOr<std::string> Links::Add(Link link, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  RemoveEnded(now);
  const auto is_callers = [&link](const Entry& entry) {
    return entry.link.authorization == link.authorization;
  };
  if (std::ranges::count_if(entries_, is_callers) >= static_cast<int64_t>(kMostOfCaller))
    entries_.erase(std::ranges::find_if(entries_, is_callers));
  if (entries_.size() >= kMost)
    return absl::ResourceExhaustedError("too many downloads are prepared: try again later");
  entries_.push_back({RandomWord(), std::move(link), now + kLife});
  return entries_.back().word;
}

std::optional<Link> Links::Find(const std::string& word, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  RemoveEnded(now);
  const auto found =
      std::ranges::find_if(entries_, [&word](const Entry& entry) { return entry.word == word; });
  if (found == entries_.end()) return std::nullopt;
  return found->link;
}

absl::StatusOr<Link> LinkOf(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  if (!json.is_object()) return InvalidArgument("the body is no object of JSON");
  Link link;
  try {
    link.blob.hash = json.at("hash").get<std::string>();
    link.blob.size = json.at("size").get<uint64_t>();
    link.instance = json.value("tenant", "");
    link.name = FileNameOf(json.value("name", "file"));
    const std::string form = json.value("form", "file");
    if (form == "page") link.form = Link::Form::kPage;
    if (form == "text") link.form = Link::Form::kText;
    if (form == "compile_report") link.form = Link::Form::kCompileReport;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("the body: {}", error.what());
  }
  if (!link.instance.empty() && !rpc::IsTenant(link.instance)) {
    return InvalidArgument("`tenant`: must be the name of a tenant");
  }
  if (!IsDigest(link.blob.hash)) {
    return InvalidArgument("`hash`: must have 64 lower-case hex characters");
  }
  return link;
}

const char* TypeOf(Link::Form form) {
  switch (form) {
    case Link::Form::kPage:
      return "text/html; charset=utf-8";
    case Link::Form::kText:
    case Link::Form::kCompileReport:
      return "text/plain; charset=utf-8";
    case Link::Form::kFile:
      break;
  }
  return "application/octet-stream";
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
