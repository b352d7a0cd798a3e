#include "services/cli/local_store.h"

namespace quench::cli {

absl::StatusOr<std::shared_ptr<LocalBlobStore>> OpenStore() {
  return LocalBlobStore::Open(LocalBlobStore::DefaultRoot());
}

}  // namespace quench::cli
