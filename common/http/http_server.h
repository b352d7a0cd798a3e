// HTTP/1.1 as a server: the library's handling of a request behind connections of our own, which are bounded. For browsers
// of people and for scrapes, a few at a time.
#pragma once

#include <absl/status/statusor.h>
#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/http/http_stream.h"

namespace quench::http {

// OK, or why no handler may see a request; `http_status` is the answer's then. The library builds a response of many ranges
// whatever it takes, and bounds bodies of a known length only.
absl::Status CheckRequest(const httplib::Request& request, int* http_status);

// Each connection is for one request, so that whatever is left of one is never taken for another.
class Server final : public httplib::Server {
 public:
  // With `tls`, which is not owned and outlives this, it speaks TLS. A handler before routing that replaces the one set
  // here calls CheckRequest.
  explicit Server(const Limits& limits, SSL_CTX* tls = nullptr);
  ~Server() override;

  // `listen`: HOST:PORT, where HOST may be an IPv6 address in brackets and port 0 is a free one. Returns the port;
  // INVALID_ARGUMENT for what is no such address, UNAVAILABLE where it is in use or not of this machine.
  absl::StatusOr<int> Bind(const std::string& listen);
  // Answers what connects to the bound port, on threads of its own. Called once, after the handlers are set.
  void Begin();
  // Ends all connections, whatever their clients do; returns when no handler runs any more.
  void Stop();

 private:
  void Accept();
  void Rebind();
  void Rest();  // for a second, or until Stop
  void Enqueue(int socket);
  void Work();
  void Serve(int socket);
  void CountWaiting();

  const Limits limits_;
  SSL_CTX* const tls_;  // null: plain text
  std::string host_;
  int port_ = 0;
  Load load_;
  std::mutex listener_mutex_;  // for who closes svr_sock_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> waiting_;  // sockets
  size_t idle_ = 0;          // threads
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

}  // namespace quench::http
