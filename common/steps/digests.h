// The blobs named by a step's messages, in any of their fields.
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

// Finds invalid digests: a hash of another form, a negative size. INVALID_ARGUMENT with a field
// violation for each.
absl::Status CheckDigests(const google::protobuf::Message& message);

// A key that is equal for requests with equal results: sha256 over tenant, method, `build_id`, `cpu`
// (empty if results do not depend on it), the salt and the request, without its StepOptions and without
// the fields of a Module that repeat what its digest determines (all but the digest).
std::string StepKey(const std::string& method, const google::protobuf::Message& request,
                    const std::string& tenant, const std::string& build_id, const std::string& cpu);

}  // namespace quench::steps
