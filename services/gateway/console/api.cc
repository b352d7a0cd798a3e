#include "services/gateway/console/api.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <array>

#include "common/base/status.h"
#include "common/rpc/errors.h"
#include "common/rpc/message_json.h"
#include "google/rpc/status.pb.h"
#include "quench/codegen/v1/codegen.pb.h"
#include "quench/gateway/v1/fleets.grpc.pb.h"
#include "quench/gateway/v1/overview.grpc.pb.h"
#include "quench/gateway/v1/tenants.grpc.pb.h"
#include "quench/gateway/v1/workflows.grpc.pb.h"

namespace quench::gateway {
namespace {

namespace v1 = ::quench::gateway::v1;
using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

template <auto kMethod>
struct Unary;
template <typename Stub, typename Request, typename Response,
          grpc::Status (Stub::*kMethod)(grpc::ClientContext*, const Request&, Response*)>
struct Unary<kMethod> {
  static absl::StatusOr<std::string> Call(const std::shared_ptr<grpc::Channel>& gateway,
                                          grpc::ClientContext* context, const std::string& json) {
    Request request;
    if (const auto read = JsonStringToMessage(json, &request); !read.ok()) {
      return InvalidArgument("the body is no {}: {}", request.GetTypeName(),
                             std::string(read.message()));
    }
    Stub stub(gateway);
    Response response;
    QUENCH_RETURN_IF_ERROR(rpc::FromGrpc((stub.*kMethod)(context, request, &response)));
    return rpc::MessageJson(response);
  }
};

using Fleets = v1::Fleets::Stub;
using Overview = v1::Overview::Stub;
using Tenants = v1::Tenants::Stub;
using Workflows = v1::Workflows::Stub;

constexpr ApiMethod kMethods[] = {
    {"Workflows/ListWorkflows", false, &Unary<&Workflows::ListWorkflows>::Call},
    {"Workflows/GetWorkflow", false, &Unary<&Workflows::GetWorkflow>::Call},
    {"Workflows/ListWorkflowSteps", false, &Unary<&Workflows::ListWorkflowSteps>::Call},
    {"Workflows/CancelWorkflow", true, &Unary<&Workflows::CancelWorkflow>::Call},
    {"Workflows/RetryWorkflow", true, &Unary<&Workflows::RetryWorkflow>::Call},
    {"Fleets/ListFleets", false, &Unary<&Fleets::ListFleets>::Call},
    {"Fleets/GetFleet", false, &Unary<&Fleets::GetFleet>::Call},
    {"Fleets/ListFleetCells", false, &Unary<&Fleets::ListFleetCells>::Call},
    {"Fleets/CancelFleet", true, &Unary<&Fleets::CancelFleet>::Call},
    {"Fleets/RetryFleet", true, &Unary<&Fleets::RetryFleet>::Call},
    {"Tenants/ListTenants", false, &Unary<&Tenants::ListTenants>::Call},
    {"Overview/GetOverview", false, &Unary<&Overview::GetOverview>::Call},
};

}  // namespace

const ApiMethod* FindApiMethod(const std::string& name) {
  for (const ApiMethod& method : kMethods) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

absl::StatusOr<std::string> CompileReportText(const std::string& bytes) {
  codegen::v1::CompileReport report;
  if (!report.ParseFromString(bytes)) return InvalidArgument("the blob is no CompileReport");
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  if (const auto written = MessageToJsonString(report, &text, options); !written.ok())
    return Internal("a CompileReport cannot be written as JSON: {}",
                    std::string(written.message()));
  return text;
}

std::string ErrorJson(const absl::Status& status) {
  google::rpc::Status error = rpc::ToProto(status);
  std::string text;
  if (MessageToJsonString(error, &text).ok()) return text;
  error.clear_details();  // of a type that is not known here
  text.clear();
  (void)MessageToJsonString(error, &text);
  return text;
}

int HttpStatusOf(absl::StatusCode code) {
  // In the order of the codes.
  constexpr std::array<int, 17> kStatus = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                                           400, 409, 400, 501, 500, 503, 500, 401};
  const auto index = static_cast<size_t>(code);
  return index < kStatus.size() ? kStatus.at(index) : 500;
}

}  // namespace quench::gateway
