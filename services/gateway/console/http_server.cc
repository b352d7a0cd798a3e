#include "services/gateway/console/http_server.h"

#include <httplib.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/address.h"

namespace quench::gateway {
namespace {

// The library's own accepts connections without an end while all its threads are busy.
class BoundedPool final : public httplib::TaskQueue {
 public:
  BoundedPool(int threads, int waiting) : most_(static_cast<size_t>(waiting)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  void enqueue(std::function<void()> job) override {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return jobs_.size() < most_; });
    jobs_.push_back(std::move(job));
    work_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      room_.notify_one();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Called by OpenSSL for each connection. A pair that is just being replaced refuses this one.
int UseCertificate(SSL* ssl, void* argument) {
  const auto& files = *static_cast<const rpc::TlsFiles*>(argument);
  const bool fits = SSL_use_certificate_chain_file(ssl, files.certificate.c_str()) == 1 &&
                    SSL_use_PrivateKey_file(ssl, files.key.c_str(), SSL_FILETYPE_PEM) == 1;
  ERR_clear_error();
  return fits ? 1 : 0;
}

// `files` outlives the server.
bool SetUp(SSL_CTX& context, rpc::TlsFiles* files) {
  SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
  SSL_CTX_set_cert_cb(&context, UseCertificate, files);
  if (!files->require_client_certificate) return true;
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return SSL_CTX_load_verify_locations(&context, files->ca.c_str(), nullptr) == 1;
}

// The member before the server: its context has a pointer to the files.
struct HasFiles {
  rpc::TlsFiles files;
};
class TlsServer final : private HasFiles, public httplib::SSLServer {
 public:
  explicit TlsServer(const rpc::TlsFiles& tls)
      : HasFiles{tls},
        httplib::SSLServer([this](SSL_CTX& context) { return SetUp(context, &files); }) {}
};

}  // namespace

absl::StatusOr<std::unique_ptr<httplib::Server>> MakeHttpServer(
    const std::optional<rpc::TlsFiles>& tls, const HttpLimits& limits) {
  constexpr int kReadSeconds = 5, kWriteSeconds = 30;
  std::unique_ptr<httplib::Server> server;
  if (tls) {
    QUENCH_RETURN_IF_ERROR(rpc::ServerTls(*tls).status());
    server = std::make_unique<TlsServer>(*tls);
  } else {
    server = std::make_unique<httplib::Server>();
  }
  if (!server->is_valid()) return Internal("the console's TLS cannot be set up");
  server->new_task_queue = [limits] { return new BoundedPool(limits.threads, limits.waiting); };
  server->set_keep_alive_max_count(1);
  server->set_read_timeout(kReadSeconds);
  server->set_write_timeout(kWriteSeconds);
  server->set_payload_max_length(limits.max_body);
  // The library's default would share a port that another server has.
  server->set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  return server;
}

absl::StatusOr<int> Bind(httplib::Server& server, const std::string& listen) {
  QUENCH_RETURN_IF_ERROR(rpc::CheckAddress(listen, false));
  if (!rpc::UnixPath(listen).empty()) {
    return InvalidArgument("`{}`: browsers do not reach a unix socket: must be HOST:PORT", listen);
  }
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  int port = std::stoi(listen.substr(colon + 1));
  if (port == 0) {
    port = server.bind_to_any_port(host);
  } else if (!server.bind_to_port(host, port)) {
    port = -1;
  }
  if (port > 0) return port;
  return absl::UnavailableError(
      fmt::format("cannot listen on `{}`: the address is in use or not of this machine", listen));
}

}  // namespace quench::gateway
