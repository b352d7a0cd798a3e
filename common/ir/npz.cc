#include "common/ir/npz.h"

#include <zip.h>

#include <algorithm>
#include <memory>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/npy.h"

namespace quench {
namespace {

constexpr zip_int64_t kMaxEntries = 10'000;
constexpr uint64_t kMaxBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxRatio = 1000;      // deflate reaches 1,032 with zeros
constexpr uint64_t kFreeBytes = 1 << 20;  // below, the ratio says nothing

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

absl::StatusOr<std::string> Unpack(zip_t* archive, zip_uint64_t index, uint64_t size,
                                   const std::string& name) {
  const std::unique_ptr<zip_file_t, CloseEntry> entry(zip_fopen_index(archive, index, 0));
  if (entry == nullptr) return InvalidArgument("`{}`: {}", name, zip_strerror(archive));
  std::string bytes(static_cast<size_t>(size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const zip_int64_t got = zip_fread(entry.get(), bytes.data() + done, bytes.size() - done);
    if (got <= 0) return InvalidArgument("`{}` is damaged: it ends after {} bytes", name, done);
    done += static_cast<size_t>(got);
  }
  char more = 0;  // reads the checksum too
  if (zip_fread(entry.get(), &more, 1) != 0) {
    return InvalidArgument("`{}` is damaged: its contents do not match what it announces", name);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::filesystem::path& path,
                                                      const std::string& shown) {
  const std::string name = shown.empty() ? path.string() : shown;
  // Names a missing file and a pipe as the other readers do.
  QUENCH_RETURN_IF_ERROR(FileMapping::Open(path).status());
  int code = 0;
  const std::unique_ptr<zip_t, CloseArchive> archive(
      zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (archive == nullptr) return InvalidArgument("`{}` is no zip archive, as .npz files are", name);
  const zip_int64_t entries = zip_get_num_entries(archive.get(), 0);
  if (entries > kMaxEntries) {
    return absl::ResourceExhaustedError(
        fmt::format("`{}` has {} entries, at most {} are read", name, entries, kMaxEntries));
  }
  std::vector<std::pair<std::string, uint64_t>> members;
  uint64_t total = 0;
  for (zip_int64_t i = 0; i < entries; ++i) {
    zip_stat_t info;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &info) != 0 ||
        (info.valid & (ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE)) !=
            (ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE)) {
      return InvalidArgument("`{}` is damaged at entry {}", name, i);
    }
    total += std::min(info.size, kMaxBytes);
    if (info.size > kMaxBytes || total > kMaxBytes ||
        (info.size > kFreeBytes && info.size / kMaxRatio > info.comp_size)) {
      return absl::ResourceExhaustedError(
          fmt::format("`{}`: entry `{}` unpacks to {} bytes from {}; at most 4 GiB in all and a "
                      "thousandfold are "
                      "unpacked",
                      name, info.name, info.size, info.comp_size));
    }
    members.emplace_back(info.name, info.size);
  }
  std::map<std::string, Tensor> arrays;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto& [member, size] = members[i];
    if (!member.ends_with(".npy")) continue;
    const std::string where = fmt::format("{}:{}", name, member);
    QUENCH_ASSIGN_OR_RETURN(const std::string bytes, Unpack(archive.get(), i, size, where));
    QUENCH_ASSIGN_OR_RETURN(arrays[member.substr(0, member.size() - 4)], ParseNpy(bytes, where));
  }
  return arrays;
}

}  // namespace quench
