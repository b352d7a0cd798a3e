#include "common/ir/constants.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/status.h"
#include "common/ir/hash.h"

namespace quench {
namespace {

constexpr uint64_t kBlobAlignment = 64;
constexpr uintptr_t kElementAlignment = 16;

// Bytes of a tensor of that type, or nullopt when it has no fixed size or one beyond 2^63.
std::optional<uint64_t> BytesOf(const Type& type) {
  const int64_t bits = DataTypeBits(type.dtype);
  if (!type.is_static() || bits == 0) return std::nullopt;
  std::vector<int64_t> dims;
  for (Dim dim : type.dims) dims.push_back(dim.value());
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count > (INT64_MAX - 7) / bits) return std::nullopt;
  return static_cast<uint64_t>(DataTypeBytes(type.dtype, *count));
}

// Sum of the sizes, or nullopt beyond 2^64.
std::optional<uint64_t> SizeOf(std::span<const BlobRange> location) {
  uint64_t total = 0;
  for (const BlobRange& range : location) {
    if (__builtin_add_overflow(total, range.size, &total)) return std::nullopt;
  }
  return total;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const FileMapping>> ConstantReader::Open(const std::string& digest) {
  auto& blob = blobs_[digest];
  if (blob == nullptr) {
    absl::StatusOr<std::shared_ptr<const FileMapping>> opened = store_.Open(digest);
    if (!opened.ok()) {
      blobs_.erase(digest);
      return opened.status();
    }
    blob = *std::move(opened);
    allowance_ += blob->bytes().size();
  }
  return blob;
}

absl::StatusOr<Tensor> ConstantReader::Read(const Type& type, std::span<const BlobRange> location) {
  const std::optional<uint64_t> bytes = BytesOf(type);
  if (!bytes)
    return InvalidArgument(
        "a constant in blobs has plain numbers as sizes and elements of fixed size");
  const std::optional<uint64_t> found = SizeOf(location);
  if (found != bytes || location.empty()) {
    return InvalidArgument("the location of a constant of {} bytes has {}", *bytes,
                           found ? std::to_string(*found) : "more than 2^64");
  }
  std::vector<std::span<const std::byte>> pieces;
  for (const BlobRange& range : location) {
    QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> blob, Open(range.blob));
    const uint64_t size = blob->bytes().size();
    if (range.offset > size || range.size > size - range.offset) {
      return InvalidArgument("{} bytes at {} of blob `{}`, which has {}", range.size, range.offset,
                             range.blob, size);
    }
    pieces.push_back(blob->bytes().subspan(range.offset, range.size));
  }
  std::vector<int64_t> dims;
  for (Dim dim : type.dims) dims.push_back(dim.value());
  // A location that a stranger chose may be unaligned; typed access to the elements may not.
  const bool aligned = reinterpret_cast<uintptr_t>(pieces[0].data()) % kElementAlignment == 0;
  if (pieces.size() == 1 && aligned) {
    return Tensor::View(type.dtype, dims, pieces[0], blobs_.at(location[0].blob));
  }
  if (*bytes > allowance_) {
    return absl::ResourceExhaustedError(
        "constants in several pieces have many times more bytes than the blobs that they lie in");
  }
  allowance_ -= *bytes;
  Tensor tensor = Tensor::Zeros(type.dtype, dims);
  std::byte* to = tensor.mutable_bytes();
  for (const std::span<const std::byte> piece : pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return tensor;
}

ConstantLoader ConstantLoaderFrom(BlobStore& store) {
  return [reader = std::make_shared<ConstantReader>(store)](
             const Type& type, const std::string&, const std::vector<BlobRange>& location) {
    return reader->Read(type, location);
  };
}

absl::Status ConstantWriter::AddPiece(std::span<const std::byte> bytes,
                                      std::vector<BlobRange>* location) {
  if (writer_ != nullptr && writer_->size() + kBlobAlignment + bytes.size() > max_blob_bytes_) {
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
    const size_t piece = std::min<size_t>(rest.size(), max_blob_bytes_);
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

bool WeightPlaces::Stored(const std::vector<BlobRange>& location) {
  return !location.empty() &&
         std::all_of(location.begin(), location.end(),
                     [&](const BlobRange& range) { return store_.Contains(range.blob); });
}

absl::Status WeightPlaces::Add(const Tensor& tensor, const Constant* constant) {
  if (!IsLarge(tensor) || by_bytes_.contains(tensor.bytes().data())) return absl::OkStatus();
  const bool known = constant != nullptr && !constant->digest.empty();
  const std::string digest = known ? constant->digest : TensorDigest(tensor);
  auto [it, fresh] = by_digest_.try_emplace(digest, nullptr);
  if (fresh) {
    it->second = &places_.emplace_back(Place{digest, {}});
    if (constant != nullptr && Stored(constant->location)) {
      it->second->location = constant->location;
    } else {
      QUENCH_RETURN_IF_ERROR(writer_.Add(tensor, &it->second->location));
    }
  }
  by_bytes_[tensor.bytes().data()] = it->second;
  return absl::OkStatus();
}

absl::Status WeightPlaces::Add(const Graph& graph) {
  absl::Status status;
  ForEachGraph(graph, [&](const Graph& g) {
    for (const Value& value : g.values) {
      if (status.ok() && value.constant != nullptr)
        status = Add(value.constant->tensor, value.constant.get());
    }
    for (const Node& node : g.nodes) {
      for (const auto& [name, attribute] : node.attributes) {
        const Tensor* tensor = std::get_if<Tensor>(&attribute);
        if (status.ok() && tensor != nullptr) status = Add(*tensor, nullptr);
      }
    }
  });
  return status.ok() ? writer_.Finish() : status;
}

}  // namespace quench
