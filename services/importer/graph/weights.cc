#include "services/importer/graph/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/constants.h"

namespace quench::importer {
namespace {

constexpr uint64_t kAlignment =
    64;  // of tensors in a blob: any vector load of a mapped weight is aligned

}  // namespace

absl::StatusOr<TensorHeader> HeaderOf(DataType dtype, std::vector<int64_t> dims) {
  if (dims.size() > kMaxRank)
    return InvalidArgument("has rank {}, at most {} is read", dims.size(), kMaxRank);
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count > INT64_MAX / 128)
    return InvalidArgument("has dims [{}], which no memory holds", fmt::join(dims, ", "));
  return TensorHeader{dtype, std::move(dims), *count, DataTypeBytes(dtype, *count)};
}

WeightWriter::WeightWriter(BlobStore& store, const StepContext& context)
    : store_(store), context_(context) {}

absl::StatusOr<std::shared_ptr<const Constant>> WeightWriter::Add(const std::string& name,
                                                                  const Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.bytes().size());
  if (tensor.dtype() == DataType::kString || bytes < kBlobTensorBytes) {
    return std::make_shared<const Constant>(Constant{tensor, "", {}});
  }
  const TensorHeader header{tensor.dtype(), tensor.dims(), tensor.size(), bytes};
  return AddLarge(name, header, [&](const ByteSink& sink) { return sink(tensor.bytes()); });
}

absl::StatusOr<std::shared_ptr<const Constant>> WeightWriter::AddLarge(const std::string& name,
                                                                       const TensorHeader& header,
                                                                       const ByteSource& source) {
  QUENCH_RETURN_IF_ERROR(MakeRoom(static_cast<uint64_t>(header.bytes)));
  auto constant = std::make_shared<Constant>();
  Sha256 digest;
  QUENCH_RETURN_IF_ERROR(source([&](std::span<const std::byte> piece) -> absl::Status {
    if (absl::Status cancelled = context_.Check(); !cancelled.ok()) return cancelled;
    digest.Update(piece);
    done_bytes_ += static_cast<int64_t>(piece.size());
    // Tensors in attributes and given inputs are not in the total.
    context_.Report({"import", name, done_bytes_, std::max(done_bytes_, total_bytes_)});
    return Append(*constant, piece);
  }));
  constant->digest = digest.HexDigest();
  unread_.push_back(
      {constant, Type::Tensor(header.dtype, {header.dims.begin(), header.dims.end()})});
  return std::shared_ptr<const Constant>(constant);
}

// A tensor that fits into one blob is never cut.
absl::Status WeightWriter::MakeRoom(uint64_t bytes) {
  if (writer_ != nullptr && writer_->size() + kAlignment + bytes > kMaxWeightBlobBytes)
    QUENCH_RETURN_IF_ERROR(Commit());
  if (writer_ == nullptr) return absl::OkStatus();
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  const uint64_t padding = (kAlignment - writer_->size() % kAlignment) % kAlignment;
  return padding == 0 ? absl::OkStatus() : writer_->Append(std::span(kZeros).first(padding));
}

absl::Status WeightWriter::Append(Constant& constant, std::span<const std::byte> piece) {
  while (!piece.empty()) {
    if (writer_ != nullptr && writer_->size() == kMaxWeightBlobBytes)
      QUENCH_RETURN_IF_ERROR(Commit());
    if (writer_ == nullptr) {
      QUENCH_ASSIGN_OR_RETURN(writer_, store_.Create());
    }
    if (open_ranges_.empty() || open_ranges_.back().first != &constant) {
      open_ranges_.emplace_back(&constant, constant.location.size());
      constant.location.push_back({"", writer_->size(), 0});
    }
    const std::span<const std::byte> part =
        piece.first(std::min<uint64_t>(piece.size(), kMaxWeightBlobBytes - writer_->size()));
    QUENCH_RETURN_IF_ERROR(writer_->Append(part));
    constant.location.back().size += part.size();
    piece = piece.subspan(part.size());
  }
  return absl::OkStatus();
}

absl::Status WeightWriter::Commit() {
  if (writer_ == nullptr) return absl::OkStatus();
  QUENCH_ASSIGN_OR_RETURN(const std::string digest, writer_->Commit());
  writer_.reset();
  for (const auto& [constant, index] : open_ranges_) constant->location[index].blob = digest;
  open_ranges_.clear();
  return absl::OkStatus();
}

absl::Status WeightWriter::Finish() {
  QUENCH_RETURN_IF_ERROR(Commit());
  ConstantReader reader(store_);
  for (const Unread& unread : unread_) {
    QUENCH_ASSIGN_OR_RETURN(unread.constant->tensor,
                            reader.Read(unread.type, unread.constant->location));
    by_bytes_.emplace(unread.constant->tensor.bytes().data(), unread.constant);
  }
  unread_.clear();
  return absl::OkStatus();
}

std::shared_ptr<const Constant> WeightWriter::FindByBytes(const std::byte* bytes) const {
  const auto found = by_bytes_.find(bytes);
  return found == by_bytes_.end() ? nullptr : found->second;
}

}  // namespace quench::importer
