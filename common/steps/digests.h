// The blobs that a step's messages name, found in whatever fields they stand.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/blobs/blob_store.h"

namespace quench::steps {

// Every build.bazel.remote.execution.v2.Digest inside `message`, each once, in the order of first
// use; empty ones are left out.
std::vector<BlobId> DigestsIn(const google::protobuf::Message& message);

// Digests that cannot be: hash of another form, negative size. INVALID_ARGUMENT with a field
// violation for each.
absl::Status CheckDigests(const google::protobuf::Message& message);

// Equal for requests whose results are equal: sha256 over tenant, method, `build_id`, `cpu` (empty
// where results do not depend on it), the salt and the request without what only says who asks and
// how (StepOptions) or repeats what digests say (all of a Module but its digest).
std::string StepKey(const std::string& method, const google::protobuf::Message& request,
                    const std::string& tenant, const std::string& build_id, const std::string& cpu);

}  // namespace quench::steps
