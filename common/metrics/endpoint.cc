#include "common/metrics/endpoint.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <string_view>

#include "common/base/status.h"

namespace quench::metrics {
namespace {

class Scraped : public prometheus::Collectable {
 public:
  explicit Scraped(const Registry& registry) : registry_(registry) {}
  std::vector<prometheus::MetricFamily> Collect() const override { return registry_.Collect(); }

 private:
  const Registry& registry_;
};

// The server below takes lists, redirections and TLS marks where an address is wanted: only
// host:port gets there.
bool IsHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  const std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string_view::npos ||
      std::stoi(std::string(port)) > 65535) {
    return false;
  }
  if (host.front() == '[') {
    return host.back() == ']' &&
           host.find_first_not_of("0123456789abcdefABCDEF:.[]") == std::string_view::npos;
  }
  return host.find_first_of(":,+[] ") == std::string_view::npos;
}

}  // namespace

struct Endpoint::Http {
  Http(const std::string& listen, const Registry& registry)
      : scraped(std::make_shared<Scraped>(registry)), exposer(listen) {
    exposer.RegisterCollectable(scraped);
  }
  std::shared_ptr<Scraped> scraped;  // outlives the exposer, which only has a weak pointer
  prometheus::Exposer exposer;
};

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Start(const std::string& listen,
                                                          const Registry& registry) {
  if (!IsHostAndPort(listen)) {
    return InvalidArgument("cannot serve metrics on `{}`: the address must be HOST:PORT", listen);
  }
  try {
    auto http = std::make_unique<Http>(listen, registry);
    const std::vector<int> ports = http->exposer.GetListeningPorts();
    if (!ports.empty()) {
      return std::unique_ptr<Endpoint>(new Endpoint(std::move(http), ports.front()));
    }
  } catch (const std::exception& error) {
    spdlog::debug("metrics on `{}`: {}", listen, error.what());  // types of the library's own
  }
  return absl::UnavailableError(fmt::format(
      "cannot serve metrics on `{}`: the address is in use or not of this machine", listen));
}

Endpoint::Endpoint(std::unique_ptr<Http> http, int port) : http_(std::move(http)), port_(port) {}

Endpoint::~Endpoint() = default;

}  // namespace quench::metrics
