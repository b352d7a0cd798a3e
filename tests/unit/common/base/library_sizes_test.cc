#include "common/base/library_sizes.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/base/files.h"

namespace quench::library_sizes_test {
namespace {

class LibrarySizesTest : public ::testing::Test {
 protected:
  absl::StatusOr<LibrarySizes> Of(const std::string& bytes) {
    const std::filesystem::path path = folder_.path() / "library";
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return SizesOfLibrary(path);
  }
  TempDir folder_ = *TempDir::Create();
};

// A header, the sections' bytes, and their table.
template <typename Header, typename Section>
std::string File(unsigned char elf_class, const std::vector<std::pair<uint64_t, uint64_t>>& parts) {
  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  std::string content;
  std::vector<Section> sections;
  for (const auto& [flags, size] : parts) {
    Section section{};
    section.sh_type = SHT_PROGBITS;
    section.sh_flags = static_cast<decltype(section.sh_flags)>(flags);
    section.sh_size = static_cast<decltype(section.sh_size)>(size);
    sections.push_back(section);
    content.append(size < 10'000 ? size : 0, 'x');
  }
  header.e_shoff = static_cast<decltype(header.e_shoff)>(sizeof header + content.size());
  header.e_shnum = static_cast<uint16_t>(sections.size());
  header.e_shentsize = sizeof(Section);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += content;
  bytes.append(reinterpret_cast<const char*>(sections.data()), sections.size() * sizeof(Section));
  return bytes;
}

TEST_F(LibrarySizesTest, PartsOfBothClasses) {
  const std::vector<std::pair<uint64_t, uint64_t>> parts = {
      {SHF_ALLOC, 1000}, {SHF_ALLOC | SHF_EXECINSTR, 300}, {SHF_ALLOC | SHF_WRITE, 50}, {0, 7}};
  for (const std::string& bytes : {File<Elf64_Ehdr, Elf64_Shdr>(ELFCLASS64, parts),
                                   File<Elf32_Ehdr, Elf32_Shdr>(ELFCLASS32, parts)}) {
    const auto sizes = Of(bytes);
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    EXPECT_EQ(sizes->file, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(sizes->data, 1000);
    EXPECT_EQ(sizes->code, 300);
    EXPECT_EQ(sizes->rest, sizes->file - 1300);
  }
}

TEST_F(LibrarySizesTest, DamagedFilesAreRefused) {
  EXPECT_FALSE(Of("").ok());
  EXPECT_FALSE(Of("no ELF file at all, but long enough").ok());
  const std::string whole = File<Elf64_Ehdr, Elf64_Shdr>(ELFCLASS64, {{SHF_ALLOC, 100}});
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(Of(whole.substr(0, size)).ok());
  const auto larger = Of(File<Elf64_Ehdr, Elf64_Shdr>(
      ELFCLASS64, {{SHF_ALLOC, uint64_t{1} << 63}, {SHF_ALLOC, uint64_t{1} << 63}}));
  EXPECT_FALSE(larger.ok());
}

}  // namespace
}  // namespace quench::library_sizes_test
