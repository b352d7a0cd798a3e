// Owners of blobs, results and workflows: the rules for tenants.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <filesystem>
#include <optional>
#include <string>

#include "common/base/context.h"

namespace quench::rpc {

// The tenant of calls if no token is required and the request names none.
inline constexpr char kDefaultTenant[] = "default";
// Tokens of this tenant act for all tenants: the gateway's token at services, and their tokens for the
// gateway's blobs and its action cache, which nobody else writes.
inline constexpr char kGatewayTenant[] = "gateway";

// The origin of a call, as its credentials say.
struct Caller {
  std::string tenant;
  CallerRole role = CallerRole::kUser;
  std::string subject = {};  // of a signed token: whom its issuer gave it to
  auto operator<=>(const Caller&) const = default;
};

// `viewer`, `user`, `operator`.
const char* RoleName(CallerRole role);
std::optional<CallerRole> ParseRole(const std::string& name);

// 1 to 63 lower-case letters, digits and `-`: tenants become names of folders.
bool IsTenant(const std::string& name);

// The tenant that a call acts for. `caller`: the tenant of its token, "" if no token is required;
// `named`: the tenant named by the request, "" for the caller's own. Callers that act for all tenants and
// name none mean kDefaultTenant. INVALID_ARGUMENT for an invalid name, PERMISSION_DENIED for another
// tenant.
absl::StatusOr<std::string> TenantOfCall(const std::string& caller, const std::string& named);

// One tenant's part of a folder; kDefaultTenant's is the folder itself.
std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant);

// The file in which processes that write into the folder share the account of its space.
std::filesystem::path SpaceFile(const std::filesystem::path& root);

// A tenant's instance name at a Remote Execution API server. `configured` "": the tenant's name,
// empty for kDefaultTenant, as our gateways expect. Else all tenants have the configured name, in
// which `{tenant}` is replaced by the tenant's name.
std::string InstanceOf(const std::string& configured, const std::string& tenant);

}  // namespace quench::rpc
