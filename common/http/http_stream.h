// A connection as the HTTP library sees one, bounded in bytes and time.
#pragma once

#include <httplib.h>
#include <openssl/ssl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace quench::http {

struct TimeLimit {
  std::chrono::milliseconds usual,
      crowded;  // the latter: while other connections wait for a thread
};

struct Limits {
  int threads = 32;  // requests at once
  int waiting = 64;  // accepted connections without a thread; others are not accepted
  size_t max_header = size_t{32} << 10;  // bytes before a request's body
  size_t max_body = size_t{64} << 10;    // bytes of it
  TimeLimit request{std::chrono::seconds(15), std::chrono::seconds(1)};  // up to its last byte
  TimeLimit stall{std::chrono::seconds(30),
                  std::chrono::seconds(10)};  // until it takes more of a response
};

// The state of a server for its connections, whose threads look every now and then.
struct Load {
  std::atomic<bool> stopping = false;
  std::atomic<bool> crowded = false;  // connections wait for a thread
};

class Stream final : public httplib::Stream {
 public:
  // Owns `socket`, which does not block. `tls` may be null; `limits` and `load` outlive this.
  Stream(int socket, SSL_CTX* tls, const Limits& limits, const Load& load);
  ~Stream() override;

  // Shakes hands, with TLS.
  bool Begin();
  // Tells a client whose request went beyond the limits, and that no more follows.
  void End();

  bool is_readable() const override { return refusal_ == nullptr; }
  bool is_writable() const override { return refusal_ == nullptr && !load_.stopping; }
  ssize_t read(char* bytes, size_t most) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // The library looks whether it is small enough for select(), which is not used here.
  socket_t socket() const override { return -1; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Step {
    ssize_t moved = -1;  // bytes; 0: the client sends no more
    short awaits = 0;    // of poll(), to try again; 0: it is done
  };
  template <typename Try>
  ssize_t Repeat(Clock::time_point start, const TimeLimit& limit, const Try& attempt);
  bool IsLate(Clock::time_point start, const TimeLimit& limit) const;
  Step StepOf(int result) const;  // of a function of OpenSSL
  Step Receive(char* bytes, size_t most);
  Step Send(const char* bytes, size_t size);
  bool Fill();
  bool EndsHeader(char byte);
  void Discard();

  const int socket_;
  const Limits& limits_;
  const Load& load_;
  const Clock::time_point start_ = Clock::now();
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  bool shaken_ = false;            // hands, or there is no need to
  const char* refusal_ = nullptr;  // of the request: the status for its client
  std::vector<char> buffer_;       // received
  size_t used_ = 0;                // bytes of `buffer_`
  size_t header_ = 0;              // bytes of it so far
  size_t matched_ = 0;             // of its end
  bool in_header_ = true;
};

}  // namespace quench::http
