#include "services/gateway/webhooks.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "common/base/status.h"
#include "quench/config/v1/config.pb.h"
#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {
namespace {

constexpr int kMostWebhooks = 4;
constexpr size_t kMostUrlBytes = 2000;
constexpr size_t kLeastSecretBytes = 24;

std::string ProblemOf(const std::string& text, const std::vector<http::Url>& allowed) {
  if (text.empty()) return "is missing";
  if (text.size() > kMostUrlBytes) {
    return fmt::format("has {} bytes, must have at most {}", text.size(), kMostUrlBytes);
  }
  const absl::StatusOr<http::Url> url = http::ParseUrl(text);
  if (!url.ok()) return MessageOf(url.status());
  if (allowed.empty()) return "is refused: this gateway posts no events (`webhooks.allowed_urls`)";
  return IsAllowed(*url, allowed) ? ""
                                  : "is none that this gateway's `webhooks.allowed_urls` allow";
}

}  // namespace

absl::StatusOr<std::vector<http::Url>> AllowedUrls(const config::v1::Webhooks& config) {
  std::vector<http::Url> allowed;
  StatusCollector problems;
  for (int i = 0; i < config.allowed_urls_size(); ++i) {
    const absl::StatusOr<http::Url> url = http::ParseUrl(config.allowed_urls(i));
    if (!url.ok()) {
      problems.Add(InvalidArgument("webhooks.allowed_urls[{}] {}", i, MessageOf(url.status())));
    } else if (!url->query.empty()) {
      problems.Add(
          InvalidArgument("webhooks.allowed_urls[{}] has a query (`?`), must end with a path", i));
    } else {
      allowed.push_back(*url);
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return allowed;
}

bool IsAllowed(const http::Url& url, const std::vector<http::Url>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&url](const http::Url& beginning) {
    return http::BeginsWith(url, beginning);
  });
}

void CheckWebhooks(const google::protobuf::RepeatedPtrField<v1::Webhook>& webhooks,
                   const std::vector<http::Url>& allowed, Violations* violations) {
  if (webhooks.size() > kMostWebhooks) {
    violations->Add("spec.webhooks", fmt::format("has {} receivers, must have at most {}",
                                                 webhooks.size(), kMostWebhooks));
    return;
  }
  for (int i = 0; i < webhooks.size(); ++i) {
    const std::string problem = ProblemOf(webhooks[i].url(), allowed);
    if (!problem.empty()) violations->Add(fmt::format("spec.webhooks[{}].url", i), problem);
  }
}

absl::StatusOr<std::string> ReadSecret(const std::string& text) {
  constexpr std::string_view kPrefix = "whsec_";
  std::string secret(absl::StripTrailingAsciiWhitespace(text));
  if (secret.starts_with(kPrefix)) {
    std::string decoded;
    if (!absl::Base64Unescape(secret.substr(kPrefix.size()), &decoded)) {
      return InvalidArgument("the secret has no base64 behind `whsec_`");
    }
    secret = decoded;
  }
  if (secret.size() < kLeastSecretBytes) {
    return InvalidArgument("the secret has {} bytes, must have at least {}", secret.size(),
                           kLeastSecretBytes);
  }
  return secret;
}

std::string Signature(const std::string& secret, const std::string& id,
                      const std::string& timestamp, const std::string& body) {
  const std::string content = id + "." + timestamp + "." + body;
  std::string bytes(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  QUENCH_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                    reinterpret_cast<const unsigned char*>(content.data()), content.size(),
                    reinterpret_cast<unsigned char*>(bytes.data()), &size) != nullptr);
  bytes.resize(size);
  return "v1," + absl::Base64Escape(bytes);
}

}  // namespace quench::gateway
