// The error that a step's process sent, as its server takes it.
#pragma once

#include <absl/status/status.h>

#include "google/rpc/status.pb.h"

namespace quench::steps {

// A model may have taken the process over: its error says what is wrong with the work, and nothing of the server, such as
// when to ask again or that its machine is at fault. Keeps the message, the fields, errno, and reasons that are the work's;
// INTERNAL for a code that no error has.
absl::Status ErrorOfStep(const google::rpc::Status& sent);

}  // namespace quench::steps
