#include "common/base/library_sizes.h"

#include "common/base/elf_file.h"
#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

// `bytes` may be anything: sums cannot overflow. Another format of libraries is another `if`.
absl::StatusOr<LibrarySizes> SizesIn(std::span<const std::byte> bytes) {
  if (!IsElf(bytes)) return InvalidArgument("it does not begin as {}", kAnElfFile);
  QUENCH_ASSIGN_OR_RETURN(const std::vector<LoadedSection> sections, LoadedSectionsOfElf(bytes));
  LibrarySizes sizes;
  sizes.file = static_cast<int64_t>(bytes.size());
  uint64_t left = bytes.size();
  for (const LoadedSection& section : sections) {
    if (section.size > left) return InvalidArgument("the sections are larger than the file");
    left -= section.size;
    (section.code ? sizes.code : sizes.data) += static_cast<int64_t>(section.size);
  }
  sizes.rest = static_cast<int64_t>(left);
  return sizes;
}

}  // namespace

absl::StatusOr<LibrarySizes> SizesOfLibrary(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  absl::StatusOr<LibrarySizes> sizes = SizesIn(file->bytes());
  if (!sizes.ok())
    return Annotate(sizes.status(), fmt::format("`{}` is not a library", path.string()));
  return sizes;
}

}  // namespace quench
