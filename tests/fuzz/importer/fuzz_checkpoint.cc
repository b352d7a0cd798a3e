// Any bytes as the index of a checkpoint: its entries, or an error. Without checksums, which nothing that
// is made up would have.
#include <span>

#include "common/base/status.h"
#include "services/importer/tensorflow/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto index = quench::importer::ReadCheckpointIndex(std::as_bytes(std::span(data, size)),
                                                           quench::importer::Checksums::kIgnore);
  if (!index.ok()) {
    QUENCH_CHECK(!quench::MessageOf(index.status()).empty());
    return 0;
  }
  for (const auto& [key, entry] : index->entries)
    QUENCH_CHECK(entry.offset() >= 0 && entry.size() >= 0 && entry.shard_id() < index->shards);
  return 0;
}
