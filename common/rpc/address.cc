#include "common/rpc/address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/status.h"

namespace quench::rpc {
namespace {

constexpr char kUnix[] = "unix:";
constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

}  // namespace

std::string UnixPath(const std::string& address) {
  if (!address.starts_with(kUnix)) return "";
  const std::string path = address.substr(sizeof kUnix - 1);
  return path.starts_with("///") ? path.substr(2) : path;
}

bool IsLocal(const std::string& address) {
  return address.starts_with(kUnix) || address.starts_with("127.") ||
         address.starts_with("[::1]:") || address.starts_with("localhost:");
}

bool IsLocalPeer(const std::string& peer) {
  // With brackets, or as an URI has them.
  for (const char* local : {kUnix, "ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:",
                            "ipv6:[::ffff:127.", "ipv6:%5B::ffff:127."}) {
    if (peer.starts_with(local)) return true;
  }
  return false;
}

std::string HostOfPeer(const std::string& peer) {
  return peer.starts_with(kUnix) ? kUnix : peer.substr(0, peer.rfind(':'));
}

absl::Status CheckAddress(const std::string& address, bool schemes) {
  if (address.starts_with(kUnix)) {
    const std::string path = UnixPath(address);
    if (path.empty() || path.size() > kLongestPath) {
      return InvalidArgument("`{}`: a unix socket's path has 1 to {} bytes, this has {}", address,
                             kLongestPath, path.size());
    }
    return absl::OkStatus();
  }
  if (schemes && address.find(":///") != std::string::npos) return absl::OkStatus();
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || colon == 0 || std::stoi(port) > 65535) {
    return InvalidArgument(
        "`{}` is not an address: must be HOST:PORT with a port up to 65535, or unix:PATH", address);
  }
  return absl::OkStatus();
}

absl::Status CheckUnixSocketIsFree(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), kLongestPath));
  const bool answered =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  if (!answered) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("cannot listen on `unix:{}`: another server does", path));
}

}  // namespace quench::rpc
