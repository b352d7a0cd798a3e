#include "common/ir/constants.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/status.h"

namespace quench {
namespace {

constexpr uint64_t kBlobAlignment = 64;
constexpr uintptr_t kElementAlignment = 16;

struct Piece {
  std::shared_ptr<const FileMapping> blob;
  std::span<const std::byte> bytes;
};

absl::StatusOr<Piece> OpenRange(BlobStore& store, const BlobRange& range) {
  QUENCH_ASSIGN_OR_RETURN(std::shared_ptr<const FileMapping> blob, store.Open(range.blob));
  const uint64_t size = blob->bytes().size();
  if (range.offset > size || range.size > size - range.offset) {
    return InvalidArgument("bytes {} and {} on of blob `{}`, which has {}", range.offset,
                           range.size, range.blob, size);
  }
  const std::span<const std::byte> bytes = blob->bytes().subspan(range.offset, range.size);
  return Piece{std::move(blob), bytes};
}

}  // namespace

absl::StatusOr<Tensor> LoadConstant(BlobStore& store, const Type& type,
                                    std::span<const BlobRange> location) {
  if (!type.is_static() || DataTypeBits(type.dtype) == 0) {
    return InvalidArgument(
        "a constant in blobs has a shape of plain numbers and elements of fixed size");
  }
  std::vector<int64_t> dims;
  for (Dim dim : type.dims) dims.push_back(dim.value());
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count > (INT64_MAX - 7) / DataTypeBits(type.dtype)) {
    return InvalidArgument("the shape of a constant does not fit into memory");
  }
  const uint64_t bytes = static_cast<uint64_t>(DataTypeBytes(type.dtype, *count));
  uint64_t found = 0;
  for (const BlobRange& range : location) {
    if (range.size > bytes - found) found = UINT64_MAX;
    if (found == UINT64_MAX) break;
    found += range.size;
  }
  if (found != bytes || location.empty()) {
    return InvalidArgument("a constant of {} bytes whose location has {}", bytes,
                           found == UINT64_MAX ? "more" : std::to_string(found));
  }
  std::vector<Piece> pieces;
  for (const BlobRange& range : location) {
    QUENCH_ASSIGN_OR_RETURN(Piece piece, OpenRange(store, range));
    pieces.push_back(std::move(piece));
  }
  // A location that a stranger chose may be unaligned; typed access to the elements may not.
  const bool aligned = reinterpret_cast<uintptr_t>(pieces[0].bytes.data()) % kElementAlignment == 0;
  if (pieces.size() == 1 && aligned)
    return Tensor::View(type.dtype, dims, pieces[0].bytes, pieces[0].blob);
  Tensor tensor = Tensor::Zeros(type.dtype, dims);
  std::byte* to = tensor.mutable_bytes();
  for (const Piece& piece : pieces) {
    if (!piece.bytes.empty()) std::memcpy(to, piece.bytes.data(), piece.bytes.size());
    to += piece.bytes.size();
  }
  return tensor;
}

ConstantLoader ConstantLoaderFrom(BlobStore& store) {
  return [&store](const Type& type, const std::string&, const std::vector<BlobRange>& location) {
    return LoadConstant(store, type, location);
  };
}

absl::Status ConstantWriter::AddPiece(std::span<const std::byte> bytes,
                                      std::vector<BlobRange>* location) {
  if (writer_ != nullptr && writer_->size() + kBlobAlignment + bytes.size() > kMaxBlobBytes) {
    QUENCH_RETURN_IF_ERROR(Finish());
  }
  if (writer_ == nullptr) {
    QUENCH_ASSIGN_OR_RETURN(writer_, store_.Create());
  }
  static constexpr std::array<std::byte, kBlobAlignment> kZeros{};
  const uint64_t padding = (kBlobAlignment - writer_->size() % kBlobAlignment) % kBlobAlignment;
  QUENCH_RETURN_IF_ERROR(writer_->Append(std::span(kZeros).first(padding)));
  location->push_back({"", writer_->size(), bytes.size()});
  pending_.push_back({location, location->size() - 1});
  return writer_->Append(bytes);
}

absl::Status ConstantWriter::Add(const Tensor& tensor, std::vector<BlobRange>* location) {
  location->clear();
  std::span<const std::byte> rest = tensor.bytes();
  do {
    const size_t piece = std::min<size_t>(rest.size(), kMaxBlobBytes);
    QUENCH_RETURN_IF_ERROR(AddPiece(rest.first(piece), location));
    rest = rest.subspan(piece);
  } while (!rest.empty());
  return absl::OkStatus();
}

absl::Status ConstantWriter::Finish() {
  if (writer_ == nullptr) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::string digest, writer_->Commit());
  writer_.reset();
  for (const Pending& pending : pending_) (*pending.location)[pending.index].blob = digest;
  pending_.clear();
  return absl::OkStatus();
}

}  // namespace quench
