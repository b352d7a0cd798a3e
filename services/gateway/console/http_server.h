// The library's handling of a request behind connections of our own, which are bounded: for browsers of people, a few at a
// time.
#pragma once

#include <absl/status/statusor.h>
#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/tls.h"
#include "services/gateway/console/http_stream.h"
#include "services/gateway/console/http_tls.h"

namespace quench::gateway {

// Each connection is for one request, so that whatever is left of one is never taken for another.
class HttpServer final : public httplib::Server {
 public:
  // With `tls` it speaks TLS. INVALID_ARGUMENT for files that are none.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Make(const std::optional<rpc::TlsFiles>& tls,
                                                          const HttpLimits& limits);
  ~HttpServer() override;

  // Takes HOST:PORT, where port 0 is a free one; returns the port. INVALID_ARGUMENT for what is no such address,
  // UNAVAILABLE where it is in use.
  absl::StatusOr<int> Bind(const std::string& listen);
  // Answers what connects to the bound port, on threads of its own. Called once, after the handlers are set.
  void Begin();
  // Ends all connections, whatever their clients do; returns when no handler runs any more.
  void Stop();

 private:
  HttpServer(std::unique_ptr<HttpTls> tls, const HttpLimits& limits);
  void Accept();
  void Rebind();
  void Rest();  // for a second, or until Stop
  void Enqueue(int socket);
  void Work();
  void Serve(int socket);
  void CountWaiting();

  const std::unique_ptr<HttpTls> tls_;  // null: plain text
  const HttpLimits limits_;
  std::string host_;
  int port_ = 0;
  HttpLoad load_;
  std::mutex listener_mutex_;  // for who closes svr_sock_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> waiting_;  // sockets
  size_t idle_ = 0;          // threads
  std::thread accepting_;
  std::vector<std::thread> threads_;
};

}  // namespace quench::gateway
