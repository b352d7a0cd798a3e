// The connection of a client as the HTTP library sees one. The library itself takes lines of any length and as many as come,
// and matches the first by a regular expression, which takes stack for each character.
#pragma once

#include <httplib.h>
#include <openssl/ssl.h>

#include <array>
#include <string>

namespace quench::http {

// Counts what one answer brings besides its body.
class AnswerBounds {
 public:
  static constexpr size_t kLongestLine = size_t{4} << 10;     // bytes, with its end
  static constexpr size_t kLongestHeader = size_t{64} << 10;  // bytes of all lines before the body

  // From here on lines are those around chunks.
  void BeginBody() { in_body_ = true; }
  bool in_body() const { return in_body_; }
  // Takes a byte of a line; false: it is one too many.
  bool Count(char byte);
  // The excess in words, for `answered with {}`; "": there is none.
  const std::string& excess() const { return excess_; }

 private:
  bool in_body_ = false;
  size_t line_ = 0, header_ = 0;
  std::string excess_;
};

class ClientStream final : public httplib::Stream {
 public:
  // Owns none of the three. `socket` blocks, with timeouts; `tls` may be null.
  ClientStream(int socket, SSL* tls, AnswerBounds* bounds)
      : socket_(socket), tls_(tls), bounds_(*bounds) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t most) override;
  ssize_t write(const char* bytes, size_t size) override;
  // The library asks servers for these.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  ssize_t Receive();

  const int socket_;
  SSL* const tls_;
  AnswerBounds& bounds_;
  std::array<char, 4096> buffer_{};  // received
  size_t used_ = 0, received_ = 0;   // bytes of `buffer_`
};

}  // namespace quench::http
