// Addresses as users write them: HOST:PORT, [V6]:PORT, unix:PATH.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace quench::rpc {

// The path of `unix:PATH`, else "".
std::string UnixPath(const std::string& address);

// Whether the address is reachable from this machine only: a unix socket, 127.0.0.0/8, ::1, localhost.
bool IsLocal(const std::string& address);

// Whether a caller is on this machine, by the peer that gRPC names: `unix:...`, `ipv4:127.0.0.1:PORT`,
// `ipv6:[::1]:PORT`. A caller behind a proxy on this machine also counts.
bool IsLocalPeer(const std::string& peer);

// A peer without its port: all connections of one machine, or of one unix socket.
std::string HostOfPeer(const std::string& peer);

// INVALID_ARGUMENT for an address that cannot be listened on or called; `schemes` permits `dns:///...`.
absl::Status CheckAddress(const std::string& address, bool schemes);

// UNAVAILABLE if a server answers on the socket, because gRPC would silently take its place.
absl::Status CheckUnixSocketIsFree(const std::string& path);

}  // namespace quench::rpc
