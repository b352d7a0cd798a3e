// The public keys of an issuer of signed tokens, as they change: a JSON Web Key Set (RFC 7517).
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "common/metrics/metrics.h"
#include "common/rpc/jws.h"
#include "common/rpc/watched_file.h"

namespace quench::rpc {

// A key for one algorithm: RS256 (RSA of 2,048 bits or more) or ES256 (P-256).
struct IssuerKey {
  std::string id, algorithm;
  PublicKey key;
};

// Thread-safe.
class IssuerKeys {
 public:
  struct Options {
    std::filesystem::path file;  // or
    std::string url;
    std::filesystem::path ca_file;
    std::chrono::milliseconds max_age{5 * 60'000};      // then they are fetched again
    std::chrono::milliseconds pause{10'000};            // between two fetches, at least
    std::chrono::milliseconds patience{3000};           // of a call that has a new key
    std::chrono::milliseconds lifetime{24 * 3600'000};  // of keys that cannot be fetched again
    metrics::Registry* registry = &metrics::Global();
  };
  // INVALID_ARGUMENT for a file that cannot be read or has no key to use. An issuer that cannot be
  // reached is asked again and again.
  static absl::StatusOr<std::unique_ptr<IssuerKeys>> Open(const Options& options);
  ~IssuerKeys();

  // `id` "": the only key for `algorithm`. A key that is not known is looked for at the issuer once in
  // `pause`, while this call waits; UNAUTHENTICATED if it is not there, UNAVAILABLE with RetryInfo while
  // that is not known.
  absl::StatusOr<IssuerKey> Find(const std::string& id, const std::string& algorithm);

 private:
  using Clock = std::chrono::steady_clock;
  using Keys = std::multimap<std::string, IssuerKey>;  // by id

  explicit IssuerKeys(const Options& options) : options_(options), file_(options.file) {}
  static absl::StatusOr<Keys> Parse(const std::string& text);
  absl::Status ReadFile();
  void FetchNowAndThen();
  void Fetch(std::unique_lock<std::mutex>& lock);
  void Take(Keys keys);
  const IssuerKey* Known(const std::string& id, const std::string& algorithm) const;
  absl::Status AwaitFetch(std::unique_lock<std::mutex>& lock);

  const Options options_;
  std::mutex mutex_;
  WatchedFile file_;
  Keys keys_;
  Clock::time_point fetched_{}, asked_{};  // the last that succeeded, and the last
  uint64_t fetches_ = 0;
  bool fetching_ = false, wanted_ = false, failed_ = false, stopping_ = false;
  std::condition_variable wake_, done_;
  std::stop_source stop_;  // of a fetch that is under way
  std::thread thread_;
};

}  // namespace quench::rpc
