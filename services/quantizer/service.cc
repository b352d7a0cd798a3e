#include "services/quantizer/service.h"

#include "quench/quantizer/v1/quantizer.grpc.pb.h"

namespace quench::quantizer {
namespace {

absl::StatusOr<v1::ListMethodsResponse> ListMethodsCall(const v1::ListMethodsRequest&,
                                                        const StepContext&) {
  return v1::ListMethodsResponse();
}

class QuantizerService final : public v1::Quantizer::CallbackService {
 public:
  explicit QuantizerService(const steps::ServiceParts& parts)
      : list_methods_(parts.control, v1::Quantizer::service_full_name(), "ListMethods",
                      metrics::GrpcType::kUnary) {}

 private:
  grpc::ServerUnaryReactor* ListMethods(grpc::CallbackServerContext* context,
                                        const v1::ListMethodsRequest* request,
                                        v1::ListMethodsResponse* response) override {
    return rpc::UnaryOnPool(list_methods_, context, request, response, ListMethodsCall);
  }

  rpc::Method list_methods_;
};

}  // namespace

const steps::ServiceDefinition& QuantizerDefinition() {
  static const steps::ServiceDefinition* const definition = new steps::ServiceDefinition{
      metrics::Service::kQuantizer,
      "quantizer",
      v1::Quantizer::service_full_name(),
      7453,
      {},
      [](const steps::ServiceParts& parts, const std::vector<steps::Step>&) {
        return std::make_unique<QuantizerService>(parts);
      }};
  return *definition;
}

}  // namespace quench::quantizer
