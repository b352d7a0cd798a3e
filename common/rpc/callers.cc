#include "common/rpc/callers.h"

#include <set>

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

absl::StatusOr<std::string> Callers::TenantOf(std::string_view authorization,
                                              const std::vector<std::string>& names) const {
  if (!authorization.empty() && tokens_ != nullptr) return tokens_->TenantOf(authorization);
  std::set<std::string> tenants;
  for (const std::string& name : names) {
    const auto found = options_.certificate_tenants.find(name);
    if (found != options_.certificate_tenants.end()) tenants.insert(found->second);
  }
  if (tenants.size() == 1) return *tenants.begin();
  if (tenants.size() > 1) {
    return absl::UnauthenticatedError(fmt::format(
        "the client's certificate has names of several tenants: {}", fmt::join(tenants, ", ")));
  }
  if (options_.optional) return kDefaultTenant;
  if (tokens_ != nullptr) return tokens_->TenantOf(authorization);
  return absl::UnauthenticatedError(
      names.empty() ? "the call comes without a client certificate"
                    : fmt::format("the client certificate's names are of no tenant here: {}",
                                  fmt::join(names, ", ")));
}

}  // namespace quench::rpc
