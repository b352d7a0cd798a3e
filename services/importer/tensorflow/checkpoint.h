// A checkpoint: an index of variables (a sorted table of keys, as LevelDB writes it) and shards with
// their contents. Nothing of the index is believed before it is checked.
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

// Whether blocks must have their checksums; what is made up, to find flaws, has none.
enum class Checksums { kVerify, kIgnore };

// The entries of a table by key. INVALID_ARGUMENT with the offset for blocks and entries outside of
// `bytes`, and for blocks whose checksum is another; UNIMPLEMENTED for compressed blocks.
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

// A whole checkpoint; shards are opened when a variable of theirs is read.
class Checkpoint {
 public:
  using OpenShard = std::function<absl::StatusOr<ExternalFiles::File>(int32_t shard)>;
  Checkpoint(CheckpointIndex index, OpenShard open)
      : index_(std::move(index)), open_(std::move(open)) {}

  const CheckpointIndex& index() const { return index_; }
  // The variable's contents as a constant. NOT_FOUND, naming near ones, where there is none;
  // INVALID_ARGUMENT where its bytes have another checksum than the index says.
  absl::StatusOr<std::shared_ptr<const Constant>> AddVariable(const std::string& key,
                                                              WeightWriter& weights);

 private:
  CheckpointIndex index_;
  OpenShard open_;
};

}  // namespace quench::importer
