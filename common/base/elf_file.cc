#include "common/base/elf_file.h"

#include <elf.h>

#include <cstring>

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

// `bytes` may be anything: nothing is read beyond their end.
template <typename Elf>
absl::StatusOr<std::vector<LoadedSection>> SectionsIn(std::span<const std::byte> bytes) {
  typename Elf::Header header;
  if (bytes.size() < sizeof header) return InvalidArgument("the ELF header is cut off");
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint64_t table = header.e_shoff, count = header.e_shnum;
  if (header.e_shentsize != sizeof(typename Elf::Section) || table > bytes.size() ||
      count > (bytes.size() - table) / sizeof(typename Elf::Section)) {
    return InvalidArgument("the table of {} sections at {} does not lie in the file", count, table);
  }
  std::vector<LoadedSection> loaded;
  for (uint64_t i = 0; i < count; ++i) {
    typename Elf::Section section;
    std::memcpy(&section, bytes.data() + table + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_ALLOC) == 0) continue;
    if ((section.sh_flags & SHF_WRITE) != 0) continue;
    loaded.push_back({section.sh_size, (section.sh_flags & SHF_EXECINSTR) != 0});
  }
  return loaded;
}

}  // namespace

bool IsElf(std::span<const std::byte> file) {
  return file.size() >= EI_NIDENT && std::memcmp(file.data(), ELFMAG, SELFMAG) == 0;
}

absl::StatusOr<std::vector<LoadedSection>> LoadedSectionsOfElf(std::span<const std::byte> file) {
  return file[EI_CLASS] == std::byte{ELFCLASS64} ? SectionsIn<Elf64>(file)
                                                 : SectionsIn<Elf32>(file);
}

}  // namespace quench
