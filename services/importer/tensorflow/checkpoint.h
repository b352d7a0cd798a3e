// A checkpoint: an index of variables (a sorted table of keys, as LevelDB writes it) and shards with
// their contents. The index is checked before it is used.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/importer/graph/external_files.h"
#include "services/importer/tensorflow/tensors.h"

namespace quench::importer {

// Whether blocks must have correct checksums; inputs made up by fuzzers do not.
enum class Checksums { kVerify, kIgnore };

// The entries of a table by key. INVALID_ARGUMENT with the offset for blocks and entries outside of
// `bytes`, and for blocks with a wrong checksum; UNIMPLEMENTED for compressed blocks.
absl::StatusOr<std::map<std::string, std::string>> ReadTable(
    std::span<const std::byte> bytes, Checksums checksums = Checksums::kVerify);

struct CheckpointIndex {
  int32_t shards = 0;
  std::map<std::string, tf::BundleEntryProto> entries;
};
absl::StatusOr<CheckpointIndex> ReadCheckpointIndex(std::span<const std::byte> bytes,
                                                    Checksums checksums = Checksums::kVerify);

// The location of a shard: "variables/variables.data-00000-of-00001".
std::string ShardLocation(const std::string& prefix, int32_t shard, int32_t shards);

// A whole checkpoint; a shard is opened when one of its variables is first read.
class Checkpoint {
 public:
  using OpenShard = std::function<absl::StatusOr<ExternalFiles::File>(int32_t shard)>;
  Checkpoint(CheckpointIndex index, OpenShard open)
      : index_(std::move(index)), open_(std::move(open)) {}

  const CheckpointIndex& index() const { return index_; }
  // The variable's contents as a constant. NOT_FOUND, with near names, if there is none;
  // INVALID_ARGUMENT if the checksum of its bytes is not the one in the index.
  absl::StatusOr<std::shared_ptr<const Constant>> AddVariable(const std::string& key,
                                                              WeightWriter& weights);

 private:
  CheckpointIndex index_;
  OpenShard open_;
};

}  // namespace quench::importer
