#include "common/rpc/jwt.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/rpc/errors.h"

namespace quench::rpc {
namespace {

using Json = nlohmann::json;

constexpr size_t kLargest = 16 << 10;
constexpr absl::Duration kLeeway = absl::Seconds(60);

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Reason::kTokenInvalid, fmt::format(format, std::forward<Args>(args)...));
}

// Text of a caller, for an error.
std::string Shown(const std::string& text) { return Printable(text.substr(0, 200)); }

std::string TextOf(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The texts of a claim: it is one, or a list of some.
std::vector<std::string> TextsOf(const Json& claims, const std::string& name) {
  std::vector<std::string> texts;
  const auto found = claims.find(name);
  if (found == claims.end()) return texts;
  if (found->is_string()) texts.push_back(found->get<std::string>());
  if (!found->is_array()) return texts;
  for (const Json& each : *found) {
    if (each.is_string()) texts.push_back(each.get<std::string>());
  }
  return texts;
}

// A claim in seconds since 1970; nothing if it is not there or not a time.
std::optional<absl::Time> TimeOf(const Json& claims, const char* name) {
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return std::nullopt;
  const double seconds = found->get<double>();
  if (!std::isfinite(seconds) || std::abs(seconds) > 1e12) return std::nullopt;
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

std::string Text(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

struct Jws {
  std::string algorithm, key_id;
  std::string_view signed_text;  // of the token
  std::string signature, payload;
};

// Parsed, not verified: only its header is read.
absl::StatusOr<Jws> Parse(std::string_view token) {
  if (!JwtVerifier::IsJwt(token)) return Invalid("the token is not a signed JSON Web Token");
  if (token.size() > kLargest) return Invalid("the token has more than {} bytes", kLargest);
  const size_t first = token.find('.'), second = token.find('.', first + 1);
  std::optional<std::string> head = DecodeBase64Url(token.substr(0, first));
  std::optional<std::string> payload = DecodeBase64Url(token.substr(first + 1, second - first - 1));
  std::optional<std::string> signature = DecodeBase64Url(token.substr(second + 1));
  const Json header = Json::parse(head.value_or(""), nullptr, false);
  if (!payload || !signature || !header.is_object())
    return Invalid("the token is not a signed JSON Web Token");
  Jws parsed{TextOf(header, "alg"), TextOf(header, "kid"), token.substr(0, second),
             *std::move(signature), *std::move(payload)};
  if (parsed.algorithm != "RS256" && parsed.algorithm != "ES256") {
    return Invalid("the token is signed by `{}`: must be RS256 or ES256", Shown(parsed.algorithm));
  }
  // Extensions that must be understood (RFC 7515, 4.1.11): none is.
  if (header.contains("crit"))
    return Invalid("the token has extensions (`crit`) that are not known here");
  return parsed;
}

absl::Status CheckTimes(const Json& claims, absl::Time now) {
  const std::optional<absl::Time> expiry = TimeOf(claims, "exp"), begin = TimeOf(claims, "nbf");
  if (!expiry) return Invalid("the token has no time `exp` at which it ends");
  if (*expiry + kLeeway <= now)
    return Error(Reason::kTokenExpired, fmt::format("the token expired at {}", Text(*expiry)));
  if (claims.contains("nbf") && !begin) return Invalid("the token's `nbf` is no time");
  if (begin && *begin - kLeeway > now) return Invalid("the token begins at {}", Text(*begin));
  return absl::OkStatus();
}

absl::StatusOr<CallerRole> RoleOf(const Json& claims, const std::string& claim) {
  if (claim.empty() || !claims.contains(claim)) return CallerRole::kUser;
  const std::string text = TextOf(claims, claim);
  if (text.empty() && claims[claim].is_string()) return CallerRole::kUser;
  if (const std::optional<CallerRole> role = ParseRole(text)) return *role;
  return Invalid("the token's `{}` must be viewer, user or operator, it is `{}`", claim,
                 Shown(text));
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t at = 0, in = 0, star = std::string_view::npos, after = 0;
  while (in < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after = in;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[in])) {
      ++at;
      ++in;
    } else if (star != std::string_view::npos) {  // the last `*` takes one more
      at = star + 1;
      in = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

bool JwtVerifier::IsJwt(std::string_view token) {
  constexpr std::string_view kBegin = "ey";  // `{` and what follows it, in base64
  return token.starts_with(kBegin) && std::count(token.begin(), token.end(), '.') == 2;
}

absl::StatusOr<std::unique_ptr<JwtVerifier>> JwtVerifier::Open(Options options) {
  if (options.tenant_claim.empty() && options.rules.empty()) options.tenant_claim = "tenant";
  QUENCH_ASSIGN_OR_RETURN(std::unique_ptr<IssuerKeys> keys, IssuerKeys::Open(options.keys));
  return std::unique_ptr<JwtVerifier>(new JwtVerifier(std::move(options), std::move(keys)));
}

absl::StatusOr<Caller> JwtVerifier::CallerOf(std::string_view token, absl::Time now) const {
  QUENCH_ASSIGN_OR_RETURN(const Jws parsed, Parse(token));
  QUENCH_ASSIGN_OR_RETURN(const IssuerKey key, keys_->Find(parsed.key_id, parsed.algorithm));
  if (!Verifies(key.key, parsed.signed_text, parsed.signature))
    return Invalid("the token's signature is wrong");
  const Json claims = Json::parse(parsed.payload, nullptr, false);
  if (!claims.is_object()) return Invalid("the token has no claims");
  if (const std::string issuer = TextOf(claims, "iss"); issuer != options_.issuer)
    return Invalid("the token's issuer is `{}`: must be `{}`", Shown(issuer), options_.issuer);
  const std::vector<std::string> audiences = TextsOf(claims, "aud");
  if (std::find(audiences.begin(), audiences.end(), options_.audience) == audiences.end()) {
    return Invalid("the token is for `{}`: must be for `{}`",
                   Shown(fmt::format("{}", fmt::join(audiences, ", "))), options_.audience);
  }
  QUENCH_RETURN_IF_ERROR(CheckTimes(claims, now));
  Caller caller;
  caller.subject = Shown(TextOf(claims, "sub"));
  for (const Rule& rule : options_.rules) {
    const std::vector<std::string> values = TextsOf(claims, rule.claim);
    const bool matches = std::any_of(values.begin(), values.end(), [&](const std::string& value) {
      return MatchesGlob(rule.value, value);
    });
    if (!matches) continue;
    caller.tenant = rule.tenant;
    if (rule.role) {
      caller.role = *rule.role;
      return caller;
    }
    QUENCH_ASSIGN_OR_RETURN(caller.role, RoleOf(claims, options_.role_claim));
    return caller;
  }
  if (options_.tenant_claim.empty())
    return Invalid("the token is of this issuer, and no rule here gives it a tenant");
  caller.tenant = TextOf(claims, options_.tenant_claim);
  if (!IsTenant(caller.tenant) || caller.tenant == kGatewayTenant) {
    return Invalid(
        "the token's `{}` is `{}`: must be a tenant (lower-case letters, digits and `-`)",
        options_.tenant_claim, Shown(caller.tenant));
  }
  QUENCH_ASSIGN_OR_RETURN(caller.role, RoleOf(claims, options_.role_claim));
  return caller;
}

}  // namespace quench::rpc
