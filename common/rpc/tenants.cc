#include "common/rpc/tenants.h"

#include "common/base/status.h"

namespace quench::rpc {

const char* RoleName(CallerRole role) {
  switch (role) {
    case CallerRole::kViewer:
      return "viewer";
    case CallerRole::kUser:
      return "user";
    case CallerRole::kOperator:
      return "operator";
  }
  return "";
}

std::optional<CallerRole> ParseRole(const std::string& name) {
  for (const CallerRole role : {CallerRole::kViewer, CallerRole::kUser, CallerRole::kOperator}) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

bool IsTenant(const std::string& name) {
  return !name.empty() && name.size() <= 63 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

absl::StatusOr<std::string> TenantOfCall(const std::string& caller, const std::string& named) {
  if (!named.empty() && !IsTenant(named)) {
    return InvalidArgument("`{}` is not a tenant: 1 to 63 lower-case letters, digits and `-`",
                           named.substr(0, 80));
  }
  const bool speaks_for_all = caller.empty() || caller == kGatewayTenant;
  if (speaks_for_all) return named.empty() ? kDefaultTenant : named;
  if (named.empty() || named == caller) return caller;
  return absl::PermissionDeniedError(
      fmt::format("the token is of tenant `{}`, the request names `{}`", caller, named));
}

std::filesystem::path TenantFolder(const std::filesystem::path& root, const std::string& tenant) {
  return tenant == kDefaultTenant ? root : root / "tenants" / tenant;
}

std::filesystem::path SpaceFile(const std::filesystem::path& root) { return root / "space"; }

std::string InstanceOf(const std::string& configured, const std::string& tenant) {
  if (configured.empty()) return tenant == kDefaultTenant ? "" : tenant;
  constexpr std::string_view kPlace = "{tenant}";
  std::string instance = configured;
  if (const size_t at = instance.find(kPlace); at != std::string::npos) {
    instance.replace(at, kPlace.size(), tenant);
  }
  return instance;
}

}  // namespace quench::rpc
