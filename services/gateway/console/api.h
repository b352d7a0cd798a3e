// Calls that the console's page may make: methods of the gateway's services as JSON.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace quench::gateway {

struct ApiMethod {
  const char* name = "";  // `Workflows/ListWorkflows`
  bool changes = false;   // as rpc::Effect
  // Calls it with the request that `json` is; returns the response. INVALID_ARGUMENT for what is no such request, and
  // the gateway's errors as it gives them.
  absl::StatusOr<std::string> (*call)(const std::shared_ptr<grpc::Channel>& gateway,
                                      grpc::ClientContext* context,
                                      const std::string& json) = nullptr;
};

// Null: the page makes no such call.
const ApiMethod* FindApiMethod(const std::string& name);

// A serialized quench.codegen.v1.CompileReport as indented JSON. INVALID_ARGUMENT if it is none. Takes memory of up to some
// sixty times the bytes meanwhile.
absl::StatusOr<std::string> CompileReportText(const std::string& bytes);

// google.rpc.Status as JSON.
std::string ErrorJson(const absl::Status& status);
// The status of HTTP for a google.rpc.Code, as google/rpc/code.proto says.
int HttpStatusOf(absl::StatusCode code);

}  // namespace quench::gateway
