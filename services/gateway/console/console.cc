#include "services/gateway/console/console.h"

#include <httplib.h>
#include <openssl/crypto.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "common/base/build_id.h"
#include "common/base/status.h"
#include "common/http/http_server.h"
#include "common/rpc/address.h"
#include "common/rpc/audit.h"
#include "common/rpc/errors.h"
#include "common/rpc/metadata.h"
#include "services/gateway/console/api.h"
#include "services/gateway/console/blob_download.h"
#include "services/gateway/console/files.h"
#include "services/gateway/console/http_tls.h"

namespace quench::gateway {
namespace {

using httplib::Request;
using httplib::Response;
using HandlerResponse = httplib::Server::HandlerResponse;

constexpr char kJson[] = "application/json";
constexpr size_t kLongestTarget = 512;
constexpr auto kCallTime = std::chrono::seconds(20);
constexpr int kMostDownloads = 16;                      // half of the threads
constexpr uint64_t kLargestReport = uint64_t{1} << 20;  // bytes that become text

// Scripts and styles are the console's own files, and no other page shows it in a frame.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";
// Reports are what a tenant's steps wrote: an origin of their own, from which nothing is reached.
constexpr char kBlobPolicy[] =
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";

void Fail(Response& response, const absl::Status& status, int http_status = 0) {
  response.status = http_status == 0 ? HttpStatusOf(status.code()) : http_status;
  response.set_content(ErrorJson(status), kJson);
}

bool IsEqualInSecret(const std::string& one, const std::string& other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

// The host of a Host header, without its port.
std::string HostOf(const std::string& header) {
  const size_t bracket = header.rfind(']');
  const size_t colon = header.find(':', bracket == std::string::npos ? 0 : bracket);
  return header.substr(0, colon);
}

bool IsThisMachine(const std::string& host) {
  const bool digits = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "[::1]" || (digits && host.starts_with("127."));
}

std::string MediaTypeOf(const std::string& header) {
  std::string type = header.substr(0, header.find(';'));
  while (type.ends_with(' ')) type.pop_back();
  return type;
}

// The browser, or a proxy before it, in the form that gRPC gives: `ipv4:127.0.0.1:50000`.
std::string PeerOf(const Request& request) {
  const bool six = request.remote_addr.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(six ? "ipv6:[{}]:{}" : "ipv4:{}:{}"), request.remote_addr,
                     request.remote_port);
}

// Names the browser in the gateway's log and audit, where the peer is the gateway's own process.
std::string RequestIdOf(const Request& request) {
  return fmt::format("console/{}/{}", PeerOf(request), RandomWord());
}

// The call that is asked for; null: none of the table.
const ApiMethod* MethodOf(const Request& request) {
  constexpr std::string_view kApi = "/api/";
  if (request.method != "POST" || !request.path.starts_with(kApi)) return nullptr;
  return FindApiMethod(request.path.substr(kApi.size()));
}

// Faults are warnings in the gateway's log. Addresses stay out of this one: clients choose them, and those of blobs are
// secrets.
void LogRequest(const Request& request, const Response& response) {
  const bool usual = response.status < 400 || response.status == 404 || response.status == 409;
  const ApiMethod* method = MethodOf(request);
  const char* what = method != nullptr                     ? method->name
                     : request.path == "/api/links"        ? "link"
                     : request.path.starts_with("/blobs/") ? "download"
                                                           : "page";
  spdlog::log(usual ? spdlog::level::debug : spdlog::level::info, "console: {} status={} peer={}",
              what, response.status, PeerOf(request));
}

void AddIfAbsent(Response& response, const char* name, const char* value) {
  if (!response.has_header(name)) response.set_header(name, value);
}

}  // namespace

Console::Console(ConsoleOptions options)
    : options_(std::move(options)), word_(options_.access.has_word ? RandomWord() : "") {}

absl::StatusOr<std::unique_ptr<Console>> Console::Start(const ConsoleOptions& options) {
  QUENCH_RETURN_IF_ERROR(Annotate(rpc::CheckAddress(options.listen, false), "console"));
  if (!options.tls && !options.insecure && !rpc::IsLocal(options.listen)) {
    return InvalidArgument(
        "console: `{}` is reached from other machines, and there is no TLS: give `server` a "
        "certificate, listen on 127.0.0.1, or set `server.insecure` if plain text is meant",
        options.listen);
  }
  std::unique_ptr<Console> console(new Console(options));
  if (options.tls) {
    QUENCH_ASSIGN_OR_RETURN(console->tls_, HttpTls::Make(*options.tls));
  }
  console->server_ = std::make_unique<http::Server>(
      http::Limits(), console->tls_ == nullptr ? nullptr : console->tls_->context());
  absl::StatusOr<int> port = console->server_->Bind(options.listen);
  if (options.any_port && absl::IsUnavailable(port.status())) {
    port = console->server_->Bind(options.listen.substr(0, options.listen.rfind(':')) + ":0");
  }
  if (!port.ok()) return Annotate(port.status(), "console");
  console->port_ = *port;
  console->SetHandlers();
  console->server_->Begin();
  return console;
}

Console::~Console() {
  cancel_->Cancel();
  server_.reset();
}

std::string Console::url() const {
  std::string host = options_.listen.substr(0, options_.listen.rfind(':'));
  if (host == "0.0.0.0" || host == "[::]") host = "localhost";
  return fmt::format("{}://{}:{}/{}{}", options_.tls ? "https" : "http", host, port_,
                     word_.empty() ? "" : "#token=", word_);
}

void Console::SetHandlers() {
  server_->set_pre_routing_handler([this](const Request& request, Response& response) {
    int http_status = 0;
    const absl::Status status = CheckRequest(request, &http_status);
    if (status.ok()) return HandlerResponse::Unhandled;
    Refuse(request, response, status, http_status);
    return HandlerResponse::Handled;
  });
  server_->set_post_routing_handler([](const Request&, Response& response) {
    AddIfAbsent(response, "Content-Security-Policy", kPagePolicy);
    AddIfAbsent(response, "Cache-Control", "no-store");
    AddIfAbsent(response, "X-Content-Type-Options", "nosniff");
    AddIfAbsent(response, "Referrer-Policy", "no-referrer");
    AddIfAbsent(response, "Cross-Origin-Opener-Policy", "same-origin");
  });
  const httplib::Server::Handler on_error = [this](const Request& request, Response& response) {
    if (!response.body.empty()) return;
    const int http_status = response.status;
    Refuse(request, response,
           http_status == 413 ? InvalidArgument("the body is too long")
                              : absl::NotFoundError("there is nothing here"),
           http_status);
  };
  server_->set_error_handler(on_error);
  server_->set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    Fail(response, Internal("an exception came out of the handler"));
  });
  server_->set_logger(LogRequest);
  const auto serve = [this](auto method) {
    return [this, method](const Request& request, Response& response) {
      (this->*method)(request, response);
    };
  };
  server_->Get("/blobs/.*", serve(&Console::ServeBlob));
  server_->Get("/.*", serve(&Console::ServeFile));
  server_->Post("/api/session", serve(&Console::ServeSession));
  server_->Post("/api/links", serve(&Console::MakeLink));
  server_->Post("/api/.*", serve(&Console::ServeCall));
}

absl::Status Console::CheckRequest(const Request& request, int* http_status) const {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && request.method != "POST") {
    *http_status = 405;
    return absl::UnimplementedError(
        fmt::format("`{}`: must be GET or POST", request.method.substr(0, 20)));
  }
  // The library matches addresses by regular expressions, which take stack for each character.
  if (request.target.size() > kLongestTarget) {
    *http_status = 414;
    return InvalidArgument("the address is too long");
  }
  // A page of another site whose name has come to mean this machine.
  if (rpc::IsLocal(options_.listen) && !IsThisMachine(HostOf(request.get_header_value("Host")))) {
    *http_status = 421;
    return absl::PermissionDeniedError(
        "`Host`: must name this machine, as in the address that the "
        "gateway printed");
  }
  QUENCH_RETURN_IF_ERROR(http::CheckRequest(request, http_status));
  if (reads) return absl::OkStatus();
  // A page of another site cannot send this without being asked first.
  if (MediaTypeOf(request.get_header_value("Content-Type")) != kJson) {
    *http_status = 415;
    return InvalidArgument("`Content-Type`: must be {}", kJson);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Console::Authorize(const Request& request, bool changes) const {
  std::string given = request.get_header_value("Authorization");
  const ConsoleAccess& access = options_.access;
  // gRPC ends the process over a value that no header can have.
  if (!std::ranges::all_of(given, [](char c) { return c >= ' ' && c <= '~'; })) {
    return absl::UnauthenticatedError("`Authorization`: must be printable ASCII");
  }
  if (!access.has_word) return given;
  if (IsEqualInSecret(given, "Bearer " + word_)) return std::string();
  if (!given.empty() && access.takes_tokens) return given;
  if (!given.empty()) {
    return absl::UnauthenticatedError(
        "the token is none of this start's: open the address that the gateway printed");
  }
  if (access.open_to_read && !changes) return given;
  return absl::UnauthenticatedError(
      changes ? "read-only without a token: open the address that the gateway printed"
              : "needs a token: open the address that the gateway printed");
}

absl::StatusOr<std::string> Console::Call(const ApiMethod& method, const Request& request,
                                          const std::string& authorization,
                                          const std::string& body) const {
  StepContext step(cancel_, nullptr);
  step.set_deadline(std::chrono::steady_clock::now() + kCallTime);
  step.set_request_id(RequestIdOf(request));
  rpc::ClientCall call(*options_.gateway, step);
  if (!authorization.empty()) call.context()->AddMetadata(rpc::kAuthorizationKey, authorization);
  return method.call(options_.gateway->grpc(), call.context(), body);
}

absl::Status Console::CheckCaller(const Request& request, const std::string& authorization) const {
  // The word, or that there need be none, has been looked at.
  if (options_.access.has_word && authorization.empty()) return absl::OkStatus();
  return Call(*FindApiMethod("Overview/GetOverview"), request, authorization, "{}").status();
}

void Console::Refuse(const Request& request, Response& response, const absl::Status& status,
                     int http_status) const {
  Fail(response, status, http_status);
  const ApiMethod* method = MethodOf(request);
  if (method == nullptr || !method->changes || options_.audit == nullptr) return;
  rpc::AuditEntry entry;
  entry.call = fmt::format("quench.gateway.v1.{}", method->name);
  entry.peer = PeerOf(request);
  entry.code = absl::StatusCodeToString(status.code());
  entry.reason = rpc::ReasonName(rpc::DefaultReason(status.code()));
  options_.audit->Write(entry);
}

void Console::ServeFile(const Request& request, Response& response) const {
  const PageFile* file = FindPageFile(request.path);
  if (file == nullptr) {
    Fail(response, absl::NotFoundError("there is nothing here"));
    return;
  }
  response.set_header("ETag", file->tag);
  response.set_header("Cache-Control", "no-cache");
  if (request.get_header_value("If-None-Match") == file->tag) {
    response.status = 304;
    return;
  }
  response.set_content(file->text.data(), file->text.size(), file->type);
}

// Says what the caller may do as far as the console knows; what a token allows is for the gateway to say.
void Console::ServeSession(const Request& request, Response& response) const {
  const nlohmann::json session = {
      {"mayRead", Authorize(request, false).ok()},
      {"mayChange", Authorize(request, true).ok()},
      {"takesTokens", options_.access.takes_tokens},
      {"demandsToken", !options_.access.has_word},
  };
  response.set_content(session.dump(), kJson);
}

void Console::ServeCall(const Request& request, Response& response) const {
  const ApiMethod* method = MethodOf(request);
  if (method == nullptr) {
    Fail(response, absl::UnimplementedError("the console makes no such call"), 404);
    return;
  }
  const absl::StatusOr<std::string> authorization = Authorize(request, method->changes);
  if (!authorization.ok()) {
    Refuse(request, response, authorization.status());
    return;
  }
  const absl::StatusOr<std::string> answer = Call(*method, request, *authorization, request.body);
  if (!answer.ok()) {
    Fail(response, answer.status());
    return;
  }
  response.set_content(*answer, kJson);
}

void Console::MakeLink(const Request& request, Response& response) {
  const absl::StatusOr<std::string> authorization = Authorize(request, false);
  absl::StatusOr<Link> link =
      authorization.ok() ? LinkOf(request.body) : absl::StatusOr<Link>(authorization.status());
  absl::Status status = link.status();
  if (status.ok()) status = CheckCaller(request, *authorization);
  if (!status.ok()) {
    Fail(response, status);
    return;
  }
  link->authorization = *authorization;
  const std::string name = link->name;
  const absl::StatusOr<std::string> word = links_.Add(*std::move(link));
  if (!word.ok()) {
    Fail(response, word.status());
    return;
  }
  const nlohmann::json made = {{"url", fmt::format("/blobs/{}/{}", *word, name)}};
  response.set_content(made.dump(), kJson);
}

absl::StatusOr<std::string> Console::ReportText(BlobDownload& download) {
  if (download.size() > kLargestReport) {
    return absl::ResourceExhaustedError(fmt::format("the report has {} bytes, at most {} are shown",
                                                    download.size(), kLargestReport));
  }
  std::string bytes;
  const auto take = [&bytes](const char* more, size_t size) {
    bytes.append(more, size);
    return true;
  };
  while (bytes.size() < download.size()) {
    if (!download.Give(bytes.size(), download.size() - bytes.size(), take))
      return absl::UnavailableError("the blob broke off");
  }
  const std::lock_guard lock(report_);
  if (cancel_->cancelled()) return absl::CancelledError("the console stops");
  return CompileReportText(bytes);
}

void Console::ServeBlob(const Request& request, Response& response) {
  const std::string rest = request.path.substr(sizeof("/blobs/") - 1);
  const std::optional<Link> link = links_.Find(rest.substr(0, rest.find('/')));
  if (!link) {
    Fail(response, absl::NotFoundError("the address has expired: ask for it again"));
    return;
  }
  const auto log = [&](const std::string& outcome) {
    spdlog::info("console: download of blob {}/{} tenant={} peer={}: {}", link->blob.hash,
                 link->blob.size, link->instance, PeerOf(request), outcome);
  };
  // Slow readers leave room for the page.
  struct Place {
    std::atomic<int>& count;
    const int before = count++;
    explicit Place(std::atomic<int>& all) : count(all) {}
    ~Place() { --count; }
  };
  auto place = std::make_shared<Place>(downloads_);
  if (place->before >= kMostDownloads) {
    response.set_header("Retry-After", "5");
    Fail(response, absl::UnavailableError("too many downloads at once: try again later"));
    log("refused: too many at once");
    return;
  }
  auto download = std::make_shared<BlobDownload>(options_.gateway, cancel_, *link);
  if (const absl::Status status = download->Begin(); !status.ok()) {
    Fail(response, status);
    log(MessageOf(status));
    return;
  }
  log("begins");
  response.set_header("Content-Security-Policy", kBlobPolicy);
  if (link->form == Link::Form::kFile) {
    response.set_header("Content-Disposition",
                        fmt::format("attachment; filename=\"{}\"", link->name));
  }
  if (link->form == Link::Form::kCompileReport) {
    absl::StatusOr<std::string> report = ReportText(*download);
    if (!report.ok()) {
      Fail(response, report.status());
      return;
    }
    const auto text = std::make_shared<const std::string>(*std::move(report));
    response.set_content_provider(
        text->size(), TypeOf(link->form),
        [text, place](size_t offset, size_t most, httplib::DataSink& sink) {
          return sink.write(text->data() + offset, most);
        });
    return;
  }
  if (download->size() == 0) {
    response.set_content("", TypeOf(link->form));
    return;
  }
  response.set_content_provider(
      download->size(), TypeOf(link->form),
      [download, place](size_t offset, size_t most, httplib::DataSink& sink) {
        return download->Give(offset, most, [&sink](const char* bytes, size_t size) {
          return sink.write(bytes, size);
        });
      });
}

}  // namespace quench::gateway
