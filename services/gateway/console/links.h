// Addresses of blobs that a browser can follow by itself: it sends no token with a download or into a frame. Each is a
// random word that stands for the blob and the token it was asked for with, for a while.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/blobs/blob_id.h"

namespace quench::gateway {

struct Link {
  enum class Form { kFile, kPage, kText, kCompileReport };  // the last: shown as JSON
  BlobId blob = {};
  std::string instance = {};       // REAPI's: the tenant, "" for the caller's own
  std::string authorization = {};  // as forwarded to the gateway, which judges it anew at each use
  std::string name = {};           // of the file
  Form form = Form::kFile;
};

// 128 random bits in hex, which nobody guesses.
std::string RandomWord();

// Thread-safe.
class Links {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMost = 1000;         // then there are no more until one ends
  static constexpr size_t kMostOfCaller = 200;  // then the caller's oldest goes
  static constexpr auto kLife = std::chrono::minutes(10);

  // RESOURCE_EXHAUSTED if there is no room: callers do not end the addresses of others.
  absl::StatusOr<std::string> Add(Link link, Clock::time_point now = Clock::now());
  std::optional<Link> Find(const std::string& word, Clock::time_point now = Clock::now());

 private:
  struct Entry {
    std::string word;
    Link link;
    Clock::time_point end;
  };
  void RemoveEnded(Clock::time_point now);

  std::mutex mutex_;
  std::list<Entry> entries_;  // oldest first
};

// The blob that `POST /api/links` asks for by the JSON of `hash`, `size`, and `tenant`, `name`, `form`. INVALID_ARGUMENT says what
// is wrong with it.
absl::StatusOr<Link> LinkOf(const std::string& body);

// The MIME type to send it as.
const char* TypeOf(Link::Form form);

// The last part of a path, with nothing in it but letters, digits, `.`, `_` and `-`; `file` if that is nothing.
std::string FileNameOf(const std::string& name);

}  // namespace quench::gateway
