#include "common/rpc/callers.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/tenants.h"

namespace quench::rpc {

absl::StatusOr<std::unique_ptr<Callers>> Callers::Open(const Options& options) {
  std::unique_ptr<Callers> callers(new Callers(options));
  if (!options.token_file.empty()) {
    QUENCH_ASSIGN_OR_RETURN(callers->tokens_, TokenList::Open(options.token_file));
  }
  return callers;
}

absl::StatusOr<Caller> Callers::CallerOf(std::string_view authorization,
                                         const std::vector<std::string>& names) const {
  if (!authorization.empty() && tokens_ != nullptr) return tokens_->CallerOf(authorization);
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
  if (options_.optional) return Caller{kDefaultTenant};
  if (tokens_ != nullptr) return tokens_->CallerOf(authorization);
  return absl::UnauthenticatedError(
      names.empty() ? "the call comes without a client certificate"
                    : fmt::format("the client certificate's names are of no tenant here: {}",
                                  fmt::join(names, ", ")));
}

}  // namespace quench::rpc
