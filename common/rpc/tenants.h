// Whose blobs, results and workflows are whose: the rules, for all who ask.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

namespace quench::rpc {

// Whose a call is where nobody needs a token, and no one else is named.
inline constexpr char kDefaultTenant[] = "default";
// Tokens of this tenant speak for all of them: the gateway's towards services, and theirs towards
// the gateway's blobs and its action cache, which nobody else writes.
inline constexpr char kGatewayTenant[] = "gateway";

// 1 to 63 lower-case letters, digits and `-`: tenants become names of folders.
bool IsTenant(const std::string& name);

// Whose things a call is about. `caller`: the tenant of its token, "" where nobody needs one;
// `named`: by the request, "" for the caller's own. Callers who speak for all and name nobody mean
// kDefaultTenant. INVALID_ARGUMENT for what is no tenant, PERMISSION_DENIED for another one.
absl::StatusOr<std::string> TenantOfCall(const std::string& caller, const std::string& named);

// One tenant's part of a folder; that of kDefaultTenant is the folder itself.
std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant);

// Where those who write into the folder share the account of its space.
std::filesystem::path SpaceFile(const std::filesystem::path& root);

// What a tenant is called at a server of the Remote Execution API. `configured` "": by its name,
// kDefaultTenant by none, as our gateways take it. Else all tenants are called that, with
// `{tenant}` in it replaced by the name of each.
std::string InstanceOf(const std::string& configured, const std::string& tenant);

}  // namespace quench::rpc
