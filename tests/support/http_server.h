// An HTTP server in the test's process, on a free port of loopback.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace httplib {
class Server;
}

namespace quench::testing {

struct HttpRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string body;
  std::map<std::string, std::string> headers;
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  // Serves https if there are a certificate and a key. The handler is called on threads of the server.
  explicit HttpServer(Handler handler, const std::string& certificate_file = "",
                      const std::string& key_file = "");
  ~HttpServer();
  int port() const { return port_; }
  std::string Url(const std::string& target) const;
  // Requests so far, in order.
  std::vector<HttpRequest> received() const;

 private:
  const bool tls_;
  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> received_;
  std::thread thread_;
};

}  // namespace quench::testing
