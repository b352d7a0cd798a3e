// Calls to other services: channels with the servers' limits, and calls that carry on who asked,
// until when, and in which trace.
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
  // Calls that a server has not begun to answer are sent again, at most so often in all, if it was
  // UNAVAILABLE. At most 5.
  int attempts = 4;
};

class Channel {
 public:
  // Does not connect yet. INVALID_ARGUMENT when the options are wrong.
  static absl::StatusOr<std::shared_ptr<Channel>> Open(const ChannelOptions& options);
  // To a server of this process, without a socket; the server must outlive its calls.
  static std::shared_ptr<Channel> InProcess(Server& server);

  // For NewStub.
  const std::shared_ptr<grpc::Channel>& grpc() const { return channel_; }
  // "" when the channel brings none.
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
