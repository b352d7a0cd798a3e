#include "tests/support/http_server.h"

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <httplib.h>

namespace quench::testing {

HttpServer::HttpServer(Handler handler, const std::string& certificate_file,
                       const std::string& key_file)
    : tls_(!certificate_file.empty()) {
  if (tls_) {
    server_ = std::make_unique<httplib::SSLServer>(certificate_file.c_str(), key_file.c_str());
  } else {
    server_ = std::make_unique<httplib::Server>();
  }
  server_->set_keep_alive_max_count(1);
  const auto serve = [this, handler = std::move(handler)](const httplib::Request& request,
                                                          httplib::Response& response) {
    HttpRequest received{
        .method = request.method, .target = request.target, .headers = {}, .body = request.body};
    for (const auto& [name, value] : request.headers) {
      received.headers[absl::AsciiStrToLower(name)] = value;
    }
    {
      const std::lock_guard lock(mutex_);
      received_.push_back(received);
    }
    const HttpReply reply = handler(received);
    response.status = reply.status;
    for (const auto& [name, value] : reply.headers) response.set_header(name, value);
    response.set_content(reply.body, "text/plain");
  };
  server_->Get(".*", serve);
  server_->Post(".*", serve);
  port_ = server_->bind_to_any_port("127.0.0.1");
  thread_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running()) std::this_thread::yield();
}

HttpServer::~HttpServer() {
  server_->stop();
  thread_.join();
}

std::string HttpServer::Url(const std::string& target) const {
  return fmt::format("{}://127.0.0.1:{}{}", tls_ ? "https" : "http", port_, target);
}

std::vector<HttpRequest> HttpServer::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

}  // namespace quench::testing
