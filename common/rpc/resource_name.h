// REAPI's names for blobs that google.bytestream.ByteStream reads and writes.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "common/blobs/blob_id.h"

namespace quench::rpc {

// {instance/}blobs/{hash}/{size}, or {instance/}uploads/{uuid}/blobs/{hash}/{size}
struct ResourceName {
  std::string instance;   // may have several segments; "" for the unnamed one
  std::string upload_id;  // a UUID; "" in names that are read
  BlobId blob;
  bool operator==(const ResourceName&) const = default;
};

std::string FormatResourceName(const ResourceName& name);

// Also accepts the digest function `sha256` before the hash, and, as REAPI requires, ignores segments
// after the size of an upload. INVALID_ARGUMENT says what a name lacks; UNIMPLEMENTED for
// other digest functions and compressed blobs.
absl::StatusOr<ResourceName> ParseReadName(const std::string& text);
absl::StatusOr<ResourceName> ParseWriteName(const std::string& text);

}  // namespace quench::rpc
