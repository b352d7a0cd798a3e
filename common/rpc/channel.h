// Calls to other services: channels with the servers' limits, and calls that pass on the caller, the
// deadline and the trace.
#pragma once

#include <absl/status/statusor.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "common/base/context.h"
#include "common/rpc/server.h"
#include "common/rpc/tls.h"
#include "common/rpc/tokens.h"

namespace grpc {
class Channel;
}

namespace quench::rpc {

struct ChannelOptions {
  // HOST:PORT, unix:PATH, or dns:///NAME:PORT, which spreads calls over all of the name's addresses
  // that report SERVING.
  std::string address;
  std::optional<TlsFiles> tls;       // absent: plain text
  std::filesystem::path token_file;  // a bearer token; sent over TLS or to this machine only
  int max_message_bytes = 8 << 20;   // largest message received or sent
  // Times that a call is sent in total if the server is UNAVAILABLE and has not begun to answer. At
  // most 5.
  int attempts = 4;
};

class Channel {
 public:
  // Does not connect yet. INVALID_ARGUMENT for wrong options.
  static absl::StatusOr<std::shared_ptr<Channel>> Open(const ChannelOptions& options);
  // A channel to a server of this process, without a socket; the server must outlive its calls.
  static std::shared_ptr<Channel> InProcess(Server& server);

  // The channel for NewStub.
  const std::shared_ptr<grpc::Channel>& grpc() const { return channel_; }
  // The bearer token; "" if the channel sends none.
  std::string Token() const { return token_ == nullptr ? "" : token_->Get(); }

 private:
  Channel(std::shared_ptr<grpc::Channel> channel, std::unique_ptr<TokenSource> token)
      : channel_(std::move(channel)), token_(std::move(token)) {}
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<TokenSource> token_;
};

// One outgoing call, as part of `step`: its deadline, cancellation, request id and trace are passed
// on. Lives until the call has ended.
class ClientCall {
 public:
  ClientCall(const Channel& channel, const StepContext& step);
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> on_cancel_;
};

}  // namespace quench::rpc
