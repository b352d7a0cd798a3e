#include "services/importer/tensorflow/checkpoint.h"

#include <fmt/ranges.h>

#include <cstring>
#include <optional>

#include "common/base/near_names.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/tensorflow/crc32c.h"

namespace quench::importer {
namespace {

// LevelDB's table format: data blocks, an index block of them, a footer with the place of the index.
constexpr size_t kFooterBytes = 48;
constexpr uint64_t kMagic = 0xdb4775248b80fb57;
constexpr size_t kTrailerBytes = 5;  // behind a block: how it is compressed, its checksum
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxKeysBytes = size_t{64}
                                 << 20;  // all keys, which the table shares the starts of
constexpr int32_t kMaxShards = 4096;

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // read at once

// Numbers of a block, one after the other.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, size_t at) : bytes_(bytes), at_(at) {}
  bool done() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }

  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (done()) return std::nullopt;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }
  std::optional<std::string_view> Text(uint64_t size) {
    if (size > bytes_.size() - at_) return std::nullopt;
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_;
};

template <typename T>
T NumberAt(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct BlockPlace {
  uint64_t offset = 0, size = 0;
};

absl::StatusOr<BlockPlace> PlaceIn(std::span<const std::byte> file, Cursor& cursor,
                                   const char* what) {
  const std::optional<uint64_t> offset = cursor.Varint(), size = cursor.Varint();
  if (!offset || !size) return InvalidArgument("{}: its place does not parse", what);
  if (*offset > file.size() || *size > file.size() - *offset ||
      file.size() - *offset - *size < kTrailerBytes)
    return InvalidArgument("{}: {} bytes at offset {} are outside of a file of {}", what, *size,
                           *offset, file.size());
  return BlockPlace{*offset, *size};
}

// The trailer's checksum is of the block and of the byte that says how it is compressed.
absl::Status CheckBlock(std::span<const std::byte> file, const BlockPlace& place) {
  const uint32_t crc = MaskedCrc32c(ExtendCrc32c(0, file.subspan(place.offset, place.size + 1)));
  const auto said = NumberAt<uint32_t>(file, place.offset + place.size + 1);
  if (crc == said) return absl::OkStatus();
  return InvalidArgument("offset {}: the block is damaged: its checksum is {:08x}, not {:08x}",
                         place.offset, crc, said);
}

// Calls visit(key, value) for each entry of a block, in order.
template <typename Visit>
absl::Status ForEachEntry(std::span<const std::byte> file, const BlockPlace& place,
                          Checksums checksums, Visit visit) {
  if (checksums == Checksums::kVerify) QUENCH_RETURN_IF_ERROR(CheckBlock(file, place));
  const auto compression = static_cast<uint8_t>(file[place.offset + place.size]);
  if (compression != 0)
    return Unsupported("offset {}: the block is compressed ({}), checkpoints are not", place.offset,
                       compression);
  std::span<const std::byte> block = file.subspan(place.offset, place.size);
  if (block.size() < 4)
    return InvalidArgument("offset {}: a block of {} bytes", place.offset, block.size());
  const uint64_t restarts = NumberAt<uint32_t>(block, block.size() - 4);
  if (restarts > (block.size() - 4) / 4)
    return InvalidArgument("offset {}: a block of {} bytes has {} restarts", place.offset,
                           block.size(), restarts);
  block = block.first(block.size() - 4 - restarts * 4);
  std::string key;
  for (Cursor cursor(block, 0); !cursor.done();) {
    const size_t at = place.offset + cursor.at();
    const std::optional<uint64_t> shared = cursor.Varint(), fresh = cursor.Varint(),
                                  size = cursor.Varint();
    const auto broken = [&] { return InvalidArgument("offset {}: an entry leaves its block", at); };
    if (!shared || !fresh || !size) return broken();
    if (*shared > key.size() || *fresh > kMaxKeyBytes)
      return InvalidArgument("offset {}: a key of {} bytes shares {} with one of {}", at, *fresh,
                             *shared, key.size());
    const std::optional<std::string_view> rest = cursor.Text(*fresh);
    const std::optional<std::string_view> value = rest ? cursor.Text(*size) : std::nullopt;
    if (!value) return broken();
    key.resize(*shared);
    key.append(*rest);
    if (key.size() > kMaxKeyBytes)
      return InvalidArgument("offset {}: a key of {} bytes", at, key.size());
    QUENCH_RETURN_IF_ERROR(visit(key, *value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ReadTable(std::span<const std::byte> bytes,
                                                             Checksums checksums) {
  if (bytes.size() < kFooterBytes || NumberAt<uint64_t>(bytes, bytes.size() - 8) != kMagic)
    return InvalidArgument("not a checkpoint's index: the mark at its end is missing");
  Cursor footer(bytes.first(bytes.size() - 8), bytes.size() - kFooterBytes);
  QUENCH_RETURN_IF_ERROR(PlaceIn(bytes, footer, "the block of blocks about blocks").status());
  QUENCH_ASSIGN_OR_RETURN(const BlockPlace index, PlaceIn(bytes, footer, "the index block"));
  std::map<std::string, std::string> entries;
  size_t keys = 0;
  uint64_t last = 0;
  QUENCH_RETURN_IF_ERROR(
      ForEachEntry(bytes, index, checksums, [&](const std::string&, std::string_view value) {
        const auto* start = reinterpret_cast<const std::byte*>(value.data());
        Cursor cursor({start, value.size()}, 0);
        absl::StatusOr<BlockPlace> place = PlaceIn(bytes, cursor, "a data block");
        if (!place.ok()) return place.status();
        // Blocks lie one behind the other, so no byte is read twice.
        if (place->offset < last)
          return InvalidArgument("offset {}: a data block overlaps the one before", place->offset);
        last = place->offset + place->size;
        return ForEachEntry(
            bytes, *place, checksums, [&](const std::string& key, std::string_view entry) {
              if ((keys += key.size()) > kMaxKeysBytes)
                return absl::ResourceExhaustedError(
                    fmt::format("its keys have more than {} bytes", kMaxKeysBytes));
              if (!entries.emplace(key, entry).second)
                return InvalidArgument("the key `{}` is there twice", Printable(key));
              return absl::OkStatus();
            });
      }));
  return entries;
}

absl::StatusOr<CheckpointIndex> ReadCheckpointIndex(std::span<const std::byte> bytes,
                                                    Checksums checksums) {
  QUENCH_ASSIGN_OR_RETURN(const auto table, ReadTable(bytes, checksums));
  const auto first = table.find("");
  tf::BundleHeaderProto header;
  if (first == table.end() || !header.ParseFromString(first->second))
    return InvalidArgument("the checkpoint's index has no header");
  if (header.endianness() == tf::BundleHeaderProto::BIG)
    return Unsupported("the checkpoint's numbers are big-endian");
  if (header.num_shards() < 1 || header.num_shards() > kMaxShards)
    return InvalidArgument("the checkpoint has {} shards, 1 to {} are read", header.num_shards(),
                           kMaxShards);
  CheckpointIndex index;
  index.shards = header.num_shards();
  StatusCollector problems;
  for (const auto& [key, value] : table) {
    if (key.empty()) continue;
    // Variables in slices have an entry for each slice beside their own, under encoded keys.
    if (key[0] == '\0') continue;
    tf::BundleEntryProto entry;
    if (!entry.ParseFromString(value)) {
      problems.Add(InvalidArgument("variable `{}`: its entry does not parse", Printable(key)));
    } else if (entry.shard_id() < 0 || entry.shard_id() >= index.shards || entry.offset() < 0 ||
               entry.size() < 0) {
      problems.Add(InvalidArgument("variable `{}`: lies in shard {} of {}, {} bytes at offset {}",
                                   Printable(key), entry.shard_id(), index.shards, entry.size(),
                                   entry.offset()));
    } else {
      index.entries.emplace(key, std::move(entry));
    }
  }
  QUENCH_RETURN_IF_ERROR(problems.Finish());
  return index;
}

std::string ShardLocation(const std::string& prefix, int32_t shard, int32_t shards) {
  return fmt::format("{}.data-{:05}-of-{:05}", prefix, shard, shards);
}

absl::StatusOr<std::shared_ptr<const Constant>> Checkpoint::AddVariable(const std::string& key,
                                                                        WeightWriter& weights) {
  const auto found = index_.entries.find(key);
  if (found == index_.entries.end()) {
    std::vector<std::string> known;
    for (const auto& [name, entry] : index_.entries) known.push_back(Printable(name));
    return absl::NotFoundError(
        fmt::format("the checkpoint has no variable `{}`; similar ones are `{}`", Printable(key),
                    fmt::join(NearNames(key, known), "`, `")));
  }
  const tf::BundleEntryProto& entry = found->second;
  if (entry.slices_size() > 0) return Unsupported("the variable is saved in slices");
  QUENCH_ASSIGN_OR_RETURN(const TensorHeader header, HeaderOf(entry.dtype(), entry.shape()));
  if (header.dtype == DataType::kString) return Unsupported("the variable holds strings");
  QUENCH_ASSIGN_OR_RETURN(const ExternalFiles::File shard, open_(entry.shard_id()));
  const auto offset = static_cast<uint64_t>(entry.offset());
  const auto size = static_cast<uint64_t>(entry.size());
  if (offset > shard.size || size > shard.size - offset)
    return InvalidArgument("{} bytes at offset {} are outside of a shard of {}", size, offset,
                           shard.size);
  if (entry.size() != header.bytes)
    return InvalidArgument("has {} bytes, its shape has {}", size, header.bytes);
  const auto check = [&](uint32_t crc) -> absl::Status {
    if (MaskedCrc32c(crc) == entry.crc32c()) return absl::OkStatus();
    return InvalidArgument("is damaged: its checksum is {:08x}, the checkpoint's index has {:08x}",
                           MaskedCrc32c(crc), entry.crc32c());
  };
  if (header.bytes >= kBlobTensorBytes) {
    return weights.AddLarge(key, header, [&](const ByteSink& sink) -> absl::Status {
      std::vector<std::byte> piece(std::min<uint64_t>(size, kPieceBytes));
      uint32_t crc = 0;
      for (uint64_t at = 0; at < size; at += piece.size()) {
        const std::span<std::byte> part =
            std::span(piece).first(std::min<uint64_t>(piece.size(), size - at));
        QUENCH_RETURN_IF_ERROR(ReadFileAt(shard, offset + at, part));
        crc = ExtendCrc32c(crc, part);
        QUENCH_RETURN_IF_ERROR(sink(part));
      }
      return check(crc);
    });
  }
  Tensor tensor = Tensor::Zeros(header.dtype, header.dims);
  const std::span<std::byte> bytes(tensor.mutable_bytes(), size);
  QUENCH_RETURN_IF_ERROR(ReadFileAt(shard, offset, bytes));
  QUENCH_RETURN_IF_ERROR(check(ExtendCrc32c(0, bytes)));
  return weights.Add(key, tensor);
}

}  // namespace quench::importer
