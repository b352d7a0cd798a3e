// The console: what the gateway knows, in a browser.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/context.h"
#include "common/rpc/channel.h"
#include "common/rpc/tls.h"
#include "services/gateway/console/links.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib
namespace quench::http {
class Server;
}
namespace quench::rpc {
class AuditLog;
}

namespace quench::gateway {

struct ApiMethod;
class BlobDownload;
class HttpTls;

inline constexpr int kConsolePort = 8450;

// Credentials that callers of the console need. If the gateway demands some, they are the caller's, and go on to it. If it
// demands none, everybody who reaches it may do everything, while a console is reached by more: by every user of the
// machine, and by every page in a browser. So it has a word of its own then, new at each start.
struct ConsoleAccess {
  bool takes_tokens = false;  // the gateway looks at tokens
  bool has_word = true;       // it does not demand them
  bool open_to_read = false;  // reading takes no word
};

struct ConsoleOptions {
  std::string listen;     // HOST:PORT; port 0 takes a free one
  bool any_port = false;  // a free one too where that is in use
  std::optional<rpc::TlsFiles> tls;
  bool insecure = false;                  // plain text beyond this machine
  std::shared_ptr<rpc::Channel> gateway;  // its server outlives the console
  ConsoleAccess access;
  rpc::AuditLog* audit =
      nullptr;  // of the changes that do not reach the gateway; outlives the console
};

class Console {
 public:
  // UNAVAILABLE if the address is in use, INVALID_ARGUMENT for wrong options.
  static absl::StatusOr<std::unique_ptr<Console>> Start(const ConsoleOptions& options);
  ~Console();  // ends the calls and connections, whatever their clients do

  int port() const { return port_; }
  // The address for a browser, with the word in its fragment, which browsers do not send.
  std::string url() const;
  const std::string& word() const { return word_; }  // "": there is none

 private:
  explicit Console(ConsoleOptions options);
  void SetHandlers();
  // OK, or the refusal of a request for where it comes from or what it is, whoever sends it.
  absl::Status CheckRequest(const httplib::Request& request, int* http_status) const;
  // The `authorization` to call the gateway with.
  absl::StatusOr<std::string> Authorize(const httplib::Request& request, bool changes) const;
  // Makes the call at the gateway; returns its response as JSON.
  absl::StatusOr<std::string> Call(const ApiMethod& method, const httplib::Request& request,
                                   const std::string& authorization, const std::string& body) const;
  // Whether the gateway takes this caller, where it looks at tokens.
  absl::Status CheckCaller(const httplib::Request& request, const std::string& authorization) const;
  // Answers with a refusal that the gateway does not see.
  void Refuse(const httplib::Request& request, httplib::Response& response,
              const absl::Status& status, int http_status = 0) const;
  void ServeFile(const httplib::Request& request, httplib::Response& response) const;
  void ServeSession(const httplib::Request& request, httplib::Response& response) const;
  void ServeCall(const httplib::Request& request, httplib::Response& response) const;
  void MakeLink(const httplib::Request& request, httplib::Response& response);
  // The whole blob, in text.
  absl::StatusOr<std::string> ReportText(BlobDownload& download);
  void ServeBlob(const httplib::Request& request, httplib::Response& response);

  const ConsoleOptions options_;
  const std::string word_;
  const std::shared_ptr<CancelToken> cancel_ = std::make_shared<CancelToken>();
  Links links_;
  std::atomic<int> downloads_ = 0;
  std::mutex report_;             // held while one becomes text
  std::unique_ptr<HttpTls> tls_;  // of `server_`; null: plain text
  std::unique_ptr<http::Server> server_;
  int port_ = 0;
};

}  // namespace quench::gateway
