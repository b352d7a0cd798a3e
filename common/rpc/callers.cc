#include "common/rpc/callers.h"

#include <absl/time/clock.h>

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/tenants.h"

namespace quench::rpc {
namespace {

constexpr std::string_view kScheme = "Bearer ";

}  // namespace

absl::StatusOr<std::unique_ptr<Callers>> Callers::Open(const Options& options) {
  std::unique_ptr<Callers> callers(new Callers(options));
  if (!options.token_file.empty()) {
    QUENCH_ASSIGN_OR_RETURN(callers->tokens_, TokenList::Open(options.token_file));
  }
  if (options.jwt) {
    QUENCH_ASSIGN_OR_RETURN(callers->jwt_, JwtVerifier::Open(*options.jwt));
  }
  return callers;
}

absl::StatusOr<Caller> Callers::CallerOf(std::string_view authorization,
                                         const std::vector<std::string>& names) const {
  const bool bearer = authorization.starts_with(kScheme);
  const std::string_view token = bearer ? authorization.substr(kScheme.size()) : "";
  if (jwt_ != nullptr && JwtVerifier::IsJwt(token)) return jwt_->CallerOf(token, absl::Now());
  if (!authorization.empty() && tokens_ != nullptr) return tokens_->CallerOf(authorization);
  if (bearer && jwt_ != nullptr)
    return Error(Reason::kTokenInvalid, "the bearer token is not a signed JSON Web Token");
  std::map<std::string, CallerRole> tenants;
  for (const std::string& name : names) {
    const auto found = options_.certificate_callers.find(name);
    if (found == options_.certificate_callers.end()) continue;
    const Caller& caller = found->second;
    const auto [known, added] = tenants.emplace(caller.tenant, caller.role);
    if (!added) known->second = std::min(known->second, caller.role);
  }
  if (tenants.size() == 1) return Caller{tenants.begin()->first, tenants.begin()->second};
  if (tenants.size() > 1) {
    std::vector<std::string> several;
    for (const auto& [tenant, role] : tenants) several.push_back(tenant);
    return absl::UnauthenticatedError(fmt::format(
        "the client's certificate has names of several tenants: {}", fmt::join(several, ", ")));
  }
  if (options_.optional && authorization.empty()) return Caller{kDefaultTenant};
  if (tokens_ != nullptr) return tokens_->CallerOf(authorization);
  if (jwt_ != nullptr && names.empty())
    return Error(Reason::kTokenMissing, "the call brings no bearer token");
  return absl::UnauthenticatedError(
      names.empty() ? "the call comes without a client certificate"
                    : fmt::format("the client certificate's names are of no tenant here: {}",
                                  fmt::join(names, ", ")));
}

}  // namespace quench::rpc
