#include "common/base/library_sizes.h"

#include <elf.h>

#include <cstring>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench {
namespace {

struct Elf32 {
  using Header = Elf32_Ehdr;
  using Section = Elf32_Shdr;
};
struct Elf64 {
  using Header = Elf64_Ehdr;
  using Section = Elf64_Shdr;
};

// `bytes` may be anything: nothing is read beyond their end, and sums cannot overflow.
template <typename Elf>
absl::StatusOr<LibrarySizes> SizesIn(std::span<const std::byte> bytes) {
  typename Elf::Header header;
  if (bytes.size() < sizeof header) return InvalidArgument("the ELF header is cut off");
  std::memcpy(&header, bytes.data(), sizeof header);
  LibrarySizes sizes;
  sizes.file = static_cast<int64_t>(bytes.size());
  const uint64_t table = header.e_shoff, count = header.e_shnum;
  if (header.e_shentsize != sizeof(typename Elf::Section) || table > bytes.size() ||
      count > (bytes.size() - table) / sizeof(typename Elf::Section)) {
    return InvalidArgument("the table of {} sections at {} does not lie in the file", count, table);
  }
  uint64_t left = bytes.size();
  for (uint64_t i = 0; i < count; ++i) {
    typename Elf::Section section;
    std::memcpy(&section, bytes.data() + table + i * sizeof section, sizeof section);
    const bool loaded = (section.sh_flags & SHF_ALLOC) != 0 && section.sh_type == SHT_PROGBITS;
    if (!loaded || (section.sh_flags & SHF_WRITE) != 0) continue;
    const uint64_t size = section.sh_size;
    if (size > left) return InvalidArgument("the sections are larger than the file");
    left -= size;
    const bool code = (section.sh_flags & SHF_EXECINSTR) != 0;
    (code ? sizes.code : sizes.data) += static_cast<int64_t>(size);
  }
  sizes.rest = static_cast<int64_t>(left);
  return sizes;
}

}  // namespace

absl::StatusOr<LibrarySizes> SizesOfLibrary(const std::filesystem::path& path) {
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file, FileMapping::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return InvalidArgument("`{}` is not a library: it does not begin as an ELF file",
                           path.string());
  const absl::StatusOr<LibrarySizes> sizes =
      bytes[EI_CLASS] == std::byte{ELFCLASS64} ? SizesIn<Elf64>(bytes) : SizesIn<Elf32>(bytes);
  if (!sizes.ok()) return Annotate(sizes.status(), fmt::format("`{}`", path.string()));
  return sizes;
}

}  // namespace quench
