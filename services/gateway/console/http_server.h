// The library's HTTP server within our limits: for browsers of people, a few at a time.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>

#include "common/rpc/tls.h"

namespace httplib {
class Server;
}

namespace quench::gateway {

struct HttpLimits {
  int threads = 32;           // requests at once; others wait to be accepted
  int waiting = 64;           // connections that have been, and have no thread yet
  size_t max_body = 1 << 16;  // bytes of a request's
};

// Each connection is for one request, so that whatever is left of one is never taken for another. With `tls` it reads the
// certificate anew for each connection, and asks for a client's where the files say so.
absl::StatusOr<std::unique_ptr<httplib::Server>> MakeHttpServer(
    const std::optional<rpc::TlsFiles>& tls, const HttpLimits& limits);

// Takes HOST:PORT, where port 0 is a free one; returns the port. INVALID_ARGUMENT for what is no such address,
// UNAVAILABLE where it is in use.
absl::StatusOr<int> Bind(httplib::Server& server, const std::string& listen);

}  // namespace quench::gateway
