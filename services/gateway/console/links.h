// Addresses of blobs that a browser can follow by itself: it sends no token with a download or into a frame. Each is a
// random word that stands for the blob and the token it was asked for with, for a while.
#pragma once

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
  static constexpr size_t kMost = 1000;  // then the oldest goes
  static constexpr auto kLife = std::chrono::minutes(10);

  std::string Add(Link link, Clock::time_point now = Clock::now());
  std::optional<Link> Find(const std::string& word, Clock::time_point now = Clock::now());

 private:
  struct Entry {
    std::string word;
    Link link;
    Clock::time_point end;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // oldest first
};

// The last part of a path, with nothing in it but letters, digits, `.`, `_` and `-`; `file` if that is nothing.
std::string FileNameOf(const std::string& name);

}  // namespace quench::gateway
