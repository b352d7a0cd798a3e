#include "common/metrics/endpoint.h"

#include <httplib.h>

#include "common/base/status.h"
#include "common/http/http_server.h"

namespace quench::metrics {
namespace {

constexpr char kText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kOpenMetrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// OpenMetrics for whoever takes it, whatever else it prefers.
void Scrape(const Registry& registry, const httplib::Request& request,
            httplib::Response& response) {
  if (request.get_header_value("Accept").find("application/openmetrics-text") !=
      std::string::npos) {
    response.set_content(registry.OpenMetrics(), kOpenMetrics);
  } else {
    response.set_content(registry.Text(), kText);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Start(const std::string& listen,
                                                          const Registry& registry) {
  http::Limits limits;
  limits.threads = 4;
  auto server = std::make_unique<http::Server>(limits);
  absl::StatusOr<int> port = server->Bind(listen);
  if (!port.ok()) return Annotate(port.status(), "metrics");
  server->Get("/metrics", [&registry](const auto& request, auto& response) {
    Scrape(registry, request, response);
  });
  server->Begin();
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(server), *port));
}

Endpoint::Endpoint(std::unique_ptr<http::Server> server, int port)
    : server_(std::move(server)), port_(port) {}

Endpoint::~Endpoint() = default;

}  // namespace quench::metrics
