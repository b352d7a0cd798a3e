#include "common/ir/zip_archive.h"

#include <zip.h>

#include <algorithm>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

constexpr uint64_t kMaxRatio = 1000;      // deflate reaches 1,032 with zeros
constexpr uint64_t kFreeBytes = 1 << 20;  // below, the ratio says nothing

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

class OpenZip final : public ZipArchive {
 public:
  OpenZip(zip_t* archive, std::string name) : archive_(archive), name_(std::move(name)) {}

  absl::Status List(const ZipLimits& limits) {
    const zip_int64_t entries = zip_get_num_entries(archive_.get(), 0);
    if (entries > limits.entries) {
      return absl::ResourceExhaustedError(
          fmt::format("`{}` has {} entries, at most {} are read", name_, entries, limits.entries));
    }
    uint64_t total = 0;
    for (zip_int64_t i = 0; i < entries; ++i) {
      zip_stat_t info;
      constexpr zip_uint64_t kWanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
      if (zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(i), 0, &info) != 0 ||
          (info.valid & kWanted) != kWanted) {
        return InvalidArgument("`{}` is damaged at entry {}", name_, i);
      }
      total += std::min(info.size, limits.bytes);
      if (info.size > limits.bytes || total > limits.bytes ||
          (info.size > kFreeBytes && info.size / kMaxRatio > info.comp_size)) {
        return absl::ResourceExhaustedError(
            fmt::format("`{}`: entry `{}` unpacks to {} bytes from {}; at most {} GiB in all and a "
                        "thousandfold "
                        "are unpacked",
                        name_, info.name, info.size, info.comp_size, limits.bytes >> 30));
      }
      members_.push_back({info.name, info.size});
    }
    return absl::OkStatus();
  }

  const std::vector<Member>& members() const override { return members_; }

  absl::StatusOr<std::string> Read(size_t member) override {
    const std::string where = fmt::format("{}:{}", name_, members_[member].name);
    const std::unique_ptr<zip_file_t, CloseEntry> entry(zip_fopen_index(archive_.get(), member, 0));
    if (entry == nullptr) return InvalidArgument("`{}`: {}", where, zip_strerror(archive_.get()));
    std::string bytes(static_cast<size_t>(members_[member].bytes), '\0');
    for (size_t done = 0; done < bytes.size();) {
      const zip_int64_t got = zip_fread(entry.get(), bytes.data() + done, bytes.size() - done);
      if (got <= 0) return InvalidArgument("`{}` is damaged: it ends after {} bytes", where, done);
      done += static_cast<size_t>(got);
    }
    char more = 0;  // reads the checksum too
    if (zip_fread(entry.get(), &more, 1) != 0) {
      return InvalidArgument("`{}` is damaged: its contents do not match what it announces", where);
    }
    return bytes;
  }

 private:
  const std::unique_ptr<zip_t, CloseArchive> archive_;
  const std::string name_;
  std::vector<Member> members_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ZipArchive>> ZipArchive::Open(const std::filesystem::path& path,
                                                             const std::string& shown,
                                                             const ZipLimits& limits) {
  const std::string name = shown.empty() ? path.string() : shown;
  // Names a missing file and a pipe as the other readers do.
  QUENCH_RETURN_IF_ERROR(FileMapping::Open(path).status());
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive == nullptr) return InvalidArgument("`{}` is not a zip archive", name);
  auto opened = std::make_unique<OpenZip>(archive, name);
  QUENCH_RETURN_IF_ERROR(opened->List(limits));
  return opened;
}

}  // namespace quench
