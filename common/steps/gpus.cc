#include "common/steps/gpus.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <optional>

#include "common/rpc/errors.h"
#include "common/runner/device.h"
#include "common/runtime/quench_rt.h"

namespace quench::steps {
namespace {

constexpr char kServer[] = "server";
constexpr auto kAskAgain = std::chrono::milliseconds(1000);

const google::protobuf::FieldDescriptor* FieldOfDevice(const google::protobuf::Message& request) {
  return request.GetDescriptor()->FindFieldByName("device");
}

}  // namespace

const Gpus& GpusOfThisMachine() {
  static const auto* const kGpus = [] {
    auto* gpus = new Gpus;
    for (;;) {
      quench_rt_gpu gpu = {};
      gpu.size = sizeof gpu;
      quench_rt_error error = {};
      const auto number = static_cast<uint32_t>(gpus->names.size());
      if (quench_rt_find_gpu(number, &gpu, &error) != QUENCH_RT_OK) {
        gpus->reason = std::data(error.text);
        return gpus;
      }
      gpus->names.push_back(fmt::format("{} ({})", std::data(gpu.name), std::data(gpu.arch)));
    }
  }();
  return *kGpus;
}

bool HasDevice(const google::protobuf::Message& request) {
  return FieldOfDevice(request) != nullptr;
}

std::string DeviceOf(const google::protobuf::Message& request) {
  const auto* field = FieldOfDevice(request);
  return field == nullptr ? "" : request.GetReflection()->GetString(request, field);
}

absl::Status CheckDevice(const google::protobuf::Message& request, const Gpus& gpus,
                         const std::string& server) {
  const std::string device = DeviceOf(request);
  if (device.empty()) return absl::OkStatus();
  if (!NamesDevice(device))
    return rpc::FieldError("device", fmt::format("`{}`, must be cpu, cuda or cuda:N", device));
  const std::optional<uint32_t> gpu = GpuOf(device);
  if (!gpu || *gpu < gpus.names.size()) return absl::OkStatus();
  const std::string message = fmt::format("`{}` has none ({})", server, gpus.reason);
  return rpc::WithRetryAfter(
      FromServer(rpc::Error(rpc::Reason::kNoDevice, message), rpc::Reason::kNoDevice, server),
      kAskAgain);
}

absl::Status FromServer(absl::Status status, rpc::Reason reason, const std::string& server) {
  return rpc::WithReason(std::move(status), reason, {{kServer, server}});
}

std::string ServerOf(const absl::Status& status) {
  const auto metadata = rpc::MetadataOf(status);
  const auto found = metadata.find(kServer);
  return found == metadata.end() ? "" : found->second;
}

}  // namespace quench::steps
