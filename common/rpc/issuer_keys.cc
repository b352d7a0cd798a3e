#include "common/rpc/issuer_keys.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/http_get.h"

namespace quench::rpc {
namespace {

using std::chrono::milliseconds;

constexpr auto kAskAgain = milliseconds(1000);

std::string TextOf(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The algorithm of a key that is for signatures; "" for others, which sets may hold too.
std::string AlgorithmOf(const nlohmann::json& key) {
  if (!key.is_object()) return "";
  const std::string type = TextOf(key, "kty"), use = TextOf(key, "use"), named = TextOf(key, "alg");
  if (!use.empty() && use != "sig") return "";
  std::string algorithm;
  if (type == "RSA") algorithm = "RS256";
  if (type == "EC" && TextOf(key, "crv") == "P-256") algorithm = "ES256";
  return named.empty() || named == algorithm ? algorithm : "";
}

// Null if the key is malformed, or not to be trusted.
PublicKey KeyOf(const nlohmann::json& key, const std::string& algorithm) {
  const bool rsa = algorithm == "RS256";
  const std::optional<std::string> first = DecodeBase64Url(TextOf(key, rsa ? "n" : "x"));
  const std::optional<std::string> second = DecodeBase64Url(TextOf(key, rsa ? "e" : "y"));
  if (!first || !second) return nullptr;
  return rsa ? RsaKey(*first, *second) : P256Key(*first, *second);
}

absl::Status NotThereYet(const std::string& url) {
  return WithRetryAfter(
      Error(Reason::kUnavailable,
            fmt::format("the keys of the token's issuer have not come from {} yet", url)),
      kAskAgain);
}

}  // namespace

absl::StatusOr<IssuerKeys::Keys> IssuerKeys::Parse(const std::string& text) {
  const nlohmann::json set = nlohmann::json::parse(text, nullptr, false);
  if (!set.is_object() || !set.contains("keys") || !set["keys"].is_array())
    return InvalidArgument("must be a JSON Web Key Set: {{\"keys\": [...]}}");
  Keys keys;
  for (const nlohmann::json& each : set["keys"]) {
    const std::string algorithm = AlgorithmOf(each);
    if (algorithm.empty()) continue;
    if (PublicKey key = KeyOf(each, algorithm); key != nullptr) {
      const std::string id = TextOf(each, "kid");
      keys.emplace(id, IssuerKey{id, algorithm, std::move(key)});
    }
  }
  if (keys.empty()) {
    return InvalidArgument("has no key to use: for RS256 of at least {} bits, or for ES256 (P-256)",
                           kLeastRsaBits);
  }
  return keys;
}

absl::StatusOr<std::unique_ptr<IssuerKeys>> IssuerKeys::Open(const Options& options) {
  std::unique_ptr<IssuerKeys> keys(new IssuerKeys(options));
  if (options.url.empty()) {
    QUENCH_RETURN_IF_ERROR(keys->ReadFile());
    return keys;
  }
  QUENCH_RETURN_IF_ERROR(CheckUrl(options.url));
  keys->thread_ = std::thread([it = keys.get()] { it->FetchNowAndThen(); });
  return keys;
}

IssuerKeys::~IssuerKeys() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.request_stop();
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status IssuerKeys::ReadFile() {
  std::optional<absl::StatusOr<std::string>> text = file_.Changed();
  if (!text) return absl::OkStatus();
  QUENCH_RETURN_IF_ERROR(text->status());
  absl::StatusOr<Keys> keys = Parse(**text);
  if (!keys.ok()) return Annotate(keys.status(), fmt::format("`{}`", options_.file.string()));
  Take(*std::move(keys));
  return absl::OkStatus();
}

void IssuerKeys::Take(Keys keys) {
  keys_ = std::move(keys);
  fetched_ = Clock::now();
  options_.registry->Get(metrics::kIssuerKeysFetched)
      .Set(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
               .count());
}

void IssuerKeys::FetchNowAndThen() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Fetch(lock);
    const milliseconds usual =
        failed_ ? std::min(options_.pause, options_.max_age) : options_.max_age;
    wake_.wait_until(lock, asked_ + usual, [this] { return stopping_ || wanted_; });
  }
}

void IssuerKeys::Fetch(std::unique_lock<std::mutex>& lock) {
  fetching_ = true;
  wanted_ = false;
  lock.unlock();
  HttpGetOptions get;
  get.ca_file = options_.ca_file;
  get.stop = stop_.get_token();
  absl::StatusOr<Keys> keys = Keys();
  if (const absl::StatusOr<std::string> text = HttpGet(options_.url, get); text.ok()) {
    keys = Parse(*text);
    if (!keys.ok()) keys = Annotate(keys.status(), options_.url);
  } else {
    keys = text.status();
  }
  lock.lock();
  const bool fails = !keys.ok();
  if (!fails) {
    if (failed_) spdlog::info("the keys of tokens come from {} again", options_.url);
    Take(*std::move(keys));
  } else if (!failed_) {  // once for each time that it goes away
    spdlog::warn("signed tokens: {}: {}",
                 keys_.empty() ? "there are no keys to check them by"
                               : "the issuer's keys stay as they were, for a day at most",
                 MessageOf(keys.status()));
  }
  failed_ = fails;
  asked_ = Clock::now();
  fetching_ = false;
  ++fetches_;
  done_.notify_all();
}

const IssuerKey* IssuerKeys::Known(const std::string& id, const std::string& algorithm) const {
  const IssuerKey* known = nullptr;
  for (const auto& [name, key] : keys_) {
    if (key.algorithm != algorithm || (!id.empty() && name != id)) continue;
    if (known != nullptr) return nullptr;  // it is not said which
    known = &key;
  }
  return known;
}

// OK: they have been fetched since.
absl::Status IssuerKeys::AwaitFetch(std::unique_lock<std::mutex>& lock) {
  if (fetching_ || wanted_) return NotThereYet(options_.url);
  if (Clock::now() < asked_ + options_.pause) return absl::OkStatus();
  wanted_ = true;
  wake_.notify_all();
  const uint64_t before = fetches_;
  const bool came =
      done_.wait_for(lock, options_.patience, [&] { return fetches_ != before || stopping_; });
  return came ? absl::OkStatus() : NotThereYet(options_.url);
}

absl::StatusOr<IssuerKey> IssuerKeys::Find(const std::string& id, const std::string& algorithm) {
  std::unique_lock lock(mutex_);
  if (options_.url.empty()) {
    if (const absl::Status status = ReadFile(); !status.ok())
      spdlog::error("the keys of tokens stay as they were: {}", MessageOf(status));
  } else if (fetched_ == Clock::time_point{} || Clock::now() > fetched_ + options_.lifetime) {
    return NotThereYet(options_.url);
  }
  const IssuerKey* key = Known(id, algorithm);
  if (key == nullptr && !options_.url.empty()) {
    QUENCH_RETURN_IF_ERROR(AwaitFetch(lock));
    key = Known(id, algorithm);
  }
  if (key != nullptr) return *key;
  return Error(Reason::kTokenInvalid,
               id.empty() ? fmt::format("the token names no key, and its issuer has not just one "
                                        "for {}",
                                        algorithm)
                          : fmt::format("the token's issuer has no key `{}` for {}",
                                        Printable(id.substr(0, 100)), algorithm));
}

}  // namespace quench::rpc
