#include "tests/support/cutting_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace quench::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ::close(fd);
  return -1;
}

// Moves what is there; 0 at the end of the connection.
size_t Move(int from, int to, uint64_t most) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::recv(from, buffer.data(), std::min<uint64_t>(buffer.size(), most), 0);
  if (count <= 0) return 0;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t more =
        ::send(to, buffer.data() + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (more <= 0) return 0;
    sent += more;
  }
  return static_cast<size_t>(count);
}

}  // namespace

CuttingProxy::CuttingProxy(int target_port, std::function<uint64_t()> budget)
    : target_(target_port), budget_(std::move(budget)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("cannot listen on a port of 127.0.0.1");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

CuttingProxy::~CuttingProxy() {
  stopping_ = true;
  acceptor_.join();
  for (std::thread& pump : pumps_) pump.join();
  ::close(listener_);
}

std::string CuttingProxy::address() const { return "127.0.0.1:" + std::to_string(port_); }

void CuttingProxy::Accept() {
  while (!stopping_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, 20) <= 0) continue;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) pumps_.emplace_back([this, client] { Pump(client); });
  }
}

void CuttingProxy::Pump(int client) {
  uint64_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    left = budget_();
  }
  const int server = left == 0 ? -1 : Connect(target_);
  pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
  while (server >= 0 && left > 0 && !stopping_) {
    if (::poll(both, 2, 20) <= 0) continue;
    size_t moved = 1;
    for (int i = 0; i < 2 && moved > 0 && left > 0; ++i) {
      if (both[i].revents == 0) continue;
      moved = Move(both[i].fd, both[1 - i].fd, left);
      left -= moved;
    }
    if (moved == 0) break;
  }
  if (left == 0) ++cuts_;
  // A reset, as by a machine that vanishes, rather than an orderly end.
  const linger reset{1, 0};
  ::setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  ::close(client);
  if (server >= 0) ::close(server);
}

}  // namespace quench::testing
