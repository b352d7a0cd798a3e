// Blobs of a gateway on this machine, copied from where they lie instead of read through a socket.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>

#include "common/blobs/blob_store.h"
#include "common/rpc/channel.h"
#include "quench/local/v1/blobs.grpc.pb.h"

namespace quench::cli {

// Where a blob lies is the gateway's word, and not believed further: what is opened must be a regular
// file that is called as the blob is and has its size, and its bytes are compared with its digest on
// their way, as all that comes from a gateway are.
//
// Bytes are shared or copied (CopyRange), never linked: a hard link is the store's own file in the hands
// of the user, whose `strip` or `chmod` would change it under a name that says what its bytes are, and
// whose times change whenever the store uses the blob.
class NearbyBlobs {
 public:
  using Create = std::function<absl::StatusOr<std::unique_ptr<BlobWriter>>()>;

  // `address` is the one that `channel` leads to.
  NearbyBlobs(std::shared_ptr<rpc::Channel> channel, const std::string& address);

  // Copies a blob through a writer of `create` and commits it. False, and nothing is left behind, when
  // the gateway is elsewhere, does not say where the blob lies, or what lies there cannot be opened
  // or is not the blob: it has to be read from the gateway then. Also for small blobs, which are
  // read as quickly.
  absl::StatusOr<bool> Copy(const BlobId& blob, const Create& create, const StepContext& step);

 private:
  std::string Locate(const BlobId& blob, const StepContext& step);

  const std::shared_ptr<rpc::Channel> channel_;
  const std::unique_ptr<local::v1::LocalBlobs::Stub> stub_;  // null: the gateway is elsewhere
};

}  // namespace quench::cli
