// Metadata that travels with calls, in both directions of a chain of services.
#pragma once

namespace quench::rpc {

inline constexpr char kAuthorizationKey[] = "authorization";
inline constexpr char kRequestIdKey[] = "x-request-id";
inline constexpr char kTraceparentKey[] = "traceparent";

}  // namespace quench::rpc
