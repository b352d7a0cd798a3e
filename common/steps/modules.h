// IR modules as inputs and outputs of steps: messages in the blob store.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <string>

#include "common/base/dtype.h"
#include "common/blobs/blob_store.h"
#include "common/ir/graph.h"
#include "quench/step/v1/step.pb.h"

namespace quench::steps {

// `field` names the module in errors: `module`. Serialised modules and their text form are read.
absl::StatusOr<Graph> LoadModule(const step::v1::Module& module, const std::string& field,
                                 LocalBlobStore& blobs);

// Stores the graph and those of its tensors that are not stored yet, and describes it in full.
absl::StatusOr<step::v1::Module> StoreModule(Graph graph, LocalBlobStore& blobs);

using BlobDigest = build::bazel::remote::execution::v2::Digest;

absl::StatusOr<BlobDigest> StoreBytes(const std::string& bytes, LocalBlobStore& blobs);
// Stores a file of the step, which is no longer at its path afterwards.
absl::StatusOr<BlobDigest> MoveFile(const std::filesystem::path& path, LocalBlobStore& blobs,
                                    const StepContext& context);

// The type in which weights and activations are stored: f16, bf16, or f32 if neither is requested.
// INVALID_ARGUMENT if both are; `field` is the path of the options in the request.
absl::StatusOr<DataType> StoredType(const step::v1::PassOptions& options, const std::string& field);

// Whether a path is relative, without `..`, and of at most 4,096 bytes.
bool IsRelativePath(const std::string& text);

// Makes the files of a request appear beneath `folder` by their paths, as links. INVALID_ARGUMENT
// names those whose paths are invalid; `field` is the path of the files in the request.
absl::Status LinkFiles(const google::protobuf::RepeatedPtrField<step::v1::File>& files,
                       const std::string& field, const std::filesystem::path& folder,
                       const LocalBlobStore& blobs);

// Makes a blob appear as the file `path`: a link to it.
absl::Status LinkBlob(const BlobDigest& digest, const std::filesystem::path& path,
                      const LocalBlobStore& blobs);

}  // namespace quench::steps
