// The GPUs of a service, and the steps that ask for one.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "common/rpc/errors.h"

namespace quench::steps {

struct Gpus {
  std::vector<std::string> names;  // by number: "NVIDIA A10 (sm_86)"
  std::string reason;              // for there being no more: no driver, perhaps
};
// Looked for once in a process.
const Gpus& GpusOfThisMachine();

// Whether requests of this type can say where their libraries run.
bool HasDevice(const google::protobuf::Message& request);
// The device that `request` asks for; "": none.
std::string DeviceOf(const google::protobuf::Message& request);

// INVALID_ARGUMENT if the request names no device; RESOURCE_EXHAUSTED with NO_DEVICE if it asks for a GPU
// that `server` does not have.
absl::Status CheckDevice(const google::protobuf::Message& request, const Gpus& gpus,
                         const std::string& server);
// The refusal with the name of the server that gives it, and that name; "" for another status.
absl::Status FromServer(absl::Status status, rpc::Reason reason, const std::string& server);
std::string ServerOf(const absl::Status& status);

}  // namespace quench::steps
