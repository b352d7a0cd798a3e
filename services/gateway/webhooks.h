// Webhooks: which URLs workflows may name, and how events are signed for their receivers.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "common/http/url.h"
#include "services/gateway/violations.h"

namespace google::protobuf {
template <typename Element>
class RepeatedPtrField;
}  // namespace google::protobuf
namespace quench::config::v1 {
class Webhooks;
}  // namespace quench::config::v1
namespace quench::gateway::v1 {
class Webhook;
}  // namespace quench::gateway::v1

namespace quench::gateway {

// `allowed_urls`, each checked; INVALID_ARGUMENT names all that are not URLs.
absl::StatusOr<std::vector<http::Url>> AllowedUrls(const config::v1::Webhooks& config);

// Whether `url` begins with one of `allowed`.
bool IsAllowed(const http::Url& url, const std::vector<http::Url>& allowed);

// Adds what is wrong with WorkflowSpec.webhooks, as fields of `spec`.
void CheckWebhooks(const google::protobuf::RepeatedPtrField<v1::Webhook>& webhooks,
                   const std::vector<http::Url>& allowed, Violations* violations);

// The bytes of a secret, as `Webhooks.secret_file` holds it. INVALID_ARGUMENT if they are fewer than 24,
// or no base64 behind `whsec_`; the message has nothing of the secret.
absl::StatusOr<std::string> ReadSecret(const std::string& text);

// The value of `webhook-signature` (Standard Webhooks, standardwebhooks.com): `v1,` and the base64 of
// HMAC-SHA256 over `id.timestamp.body`.
std::string Signature(const std::string& secret, const std::string& id,
                      const std::string& timestamp, const std::string& body);

}  // namespace quench::gateway
