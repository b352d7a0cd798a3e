// One blob on its way from the gateway to a browser, a chunk at a time.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <memory>
#include <string>

#include "common/base/context.h"
#include "common/rpc/channel.h"
#include "services/gateway/console/links.h"

namespace quench::gateway {

class BlobDownload {
 public:
  BlobDownload(std::shared_ptr<rpc::Channel> gateway, std::shared_ptr<CancelToken> cancel,
               Link link);
  ~BlobDownload();

  // Reads the first chunk, so that what is wrong is known before an answer begins.
  absl::Status Begin();
  uint64_t size() const { return link_.blob.size; }
  // Gives at most `most` bytes from `offset` on to `take`, which says whether it took them. False: it did not, or the
  // gateway broke off. Anew from another offset than where it stopped.
  bool Give(uint64_t offset, uint64_t most,
            const std::function<bool(const char* bytes, size_t size)>& take);

 private:
  struct Call;
  absl::Status Open(uint64_t offset);
  absl::Status Next();

  const std::shared_ptr<rpc::Channel> gateway_;
  const std::shared_ptr<CancelToken> cancel_;
  const Link link_;
  std::unique_ptr<Call> call_;
  std::string chunk_;
  size_t used_ = 0;      // bytes of `chunk_`
  uint64_t offset_ = 0;  // of the next byte
};

}  // namespace quench::gateway
