#include "services/codegen/object/weight_section.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::codegen {
namespace {

constexpr uint64_t kBufferBytes = 1 << 20;

absl::Status WriteAt(int fd, std::string_view bytes, off_t offset,
                     const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return ErrnoStatus(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

}  // namespace

WeightsWriter::WeightsWriter(std::filesystem::path path, int fd, const Target& target,
                             std::string symbol)
    : path_(std::move(path)),
      fd_(fd),
      target_(target),
      format_(FormatOf(target)),
      symbol_(std::move(symbol)) {}

WeightsWriter::~WeightsWriter() { ::close(fd_); }

absl::StatusOr<std::unique_ptr<WeightsWriter>> WeightsWriter::Create(
    const std::filesystem::path& path, const Target& target, const std::string& link_prefix) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  return std::unique_ptr<WeightsWriter>(
      new WeightsWriter(path, fd, target, link_prefix + kWeightsSymbol));
}

absl::StatusOr<uint64_t> WeightsWriter::Begin() {
  static constexpr std::byte kZeros[kWeightAlignment] = {};
  const uint64_t rest = (kWeightAlignment - size_ % kWeightAlignment) % kWeightAlignment;
  QUENCH_RETURN_IF_ERROR(Append({kZeros, rest}));
  return size_;
}

absl::Status WeightsWriter::Append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) QUENCH_RETURN_IF_ERROR(Flush());
  if (bytes.size() > kBufferBytes) {
    QUENCH_RETURN_IF_ERROR(WriteAt(fd_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                   static_cast<off_t>(format_.weights_offset + size_), path_));
  } else {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::Status WeightsWriter::Flush() {
  QUENCH_RETURN_IF_ERROR(WriteAt(
      fd_, buffer_, static_cast<off_t>(format_.weights_offset + size_ - buffer_.size()), path_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status WeightsWriter::Finish() {
  if (target_.pointer_bits == 32 && size_ > (uint64_t{1} << 31)) {
    return absl::ResourceExhaustedError(fmt::format(
        "the model has {} bytes of weights, target `{}` takes at most 2 GiB", size_, target_.name));
  }
  if (size_ == 0)
    QUENCH_RETURN_IF_ERROR(Append(std::as_bytes(std::span("\0", 1))));  // the symbol needs a place
  QUENCH_RETURN_IF_ERROR(Flush());
  const WeightObject object = format_.weight_object(target_, symbol_, size_);
  QUENCH_RETURN_IF_ERROR(WriteAt(fd_, object.before, 0, path_));
  return WriteAt(fd_, object.after, static_cast<off_t>(format_.weights_offset + size_), path_);
}

}  // namespace quench::codegen
