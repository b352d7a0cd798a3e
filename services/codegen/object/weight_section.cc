#include "services/codegen/object/weight_section.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::codegen {
namespace {

constexpr uint64_t kBufferBytes = 1 << 20;
// The section starts here in the file: past either ELF header, at its own alignment.
constexpr uint64_t kSectionOffset = 64;
constexpr char kSectionNames[] = "\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
constexpr uint32_t kSymtabName = 1, kStrtabName = 9, kShstrtabName = 17, kNoteName = 27;

struct Elf64 {
  using Ehdr = Elf64_Ehdr;
  using Shdr = Elf64_Shdr;
  using Sym = Elf64_Sym;
  static constexpr unsigned char kClass = ELFCLASS64;
};
struct Elf32 {
  using Ehdr = Elf32_Ehdr;
  using Shdr = Elf32_Shdr;
  using Sym = Elf32_Sym;
  static constexpr unsigned char kClass = ELFCLASS32;
};

template <typename T>
std::string_view BytesOf(const T& object) {
  return {reinterpret_cast<const char*>(&object), sizeof object};
}

// Section indices.
enum : uint16_t { kNull, kWeights, kSymtab, kStrtab, kShstrtab, kNote, kSections };

template <typename E>
typename E::Ehdr FileHeader(const Target& target, uint64_t section_headers) {
  typename E::Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = E::kClass;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = target.elf_machine;
  header.e_version = EV_CURRENT;
  header.e_flags = target.elf_flags;
  header.e_ehsize = sizeof header;
  header.e_shoff = static_cast<decltype(header.e_shoff)>(section_headers);
  header.e_shentsize = sizeof(typename E::Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kShstrtab;
  return header;
}

template <typename E>
typename E::Shdr Section(uint32_t name, uint32_t type, uint64_t offset, uint64_t size,
                         uint64_t alignment) {
  typename E::Shdr section{};
  section.sh_name = name;
  section.sh_type = type;
  section.sh_offset = static_cast<decltype(section.sh_offset)>(offset);
  section.sh_size = static_cast<decltype(section.sh_size)>(size);
  section.sh_addralign = static_cast<decltype(section.sh_addralign)>(alignment);
  return section;
}

// The tables after the weights, which end at `end` in the file; and the header in front.
template <typename E>
std::pair<std::string, std::string> Tables(const Target& target, const std::string& symbol,
                                           uint64_t size) {
  const std::string names =
      std::string(kSectionNames, sizeof kSectionNames) + target.weight_section + '\0';
  const std::string strings = std::string(1, '\0') + symbol + '\0';
  typename E::Sym symbols[2]{};
  symbols[1].st_name = 1;
  symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  symbols[1].st_other = STV_HIDDEN;
  symbols[1].st_shndx = kWeights;
  symbols[1].st_size = static_cast<decltype(symbols[1].st_size)>(size);

  const uint64_t end = kSectionOffset + size;
  std::string tail((8 - end % 8) % 8, '\0');
  const uint64_t symtab = end + tail.size();
  tail += BytesOf(symbols);
  const uint64_t strtab = end + tail.size();
  tail += strings;
  const uint64_t shstrtab = end + tail.size();
  tail += names;
  tail.append((8 - (end + tail.size()) % 8) % 8, '\0');
  const uint64_t headers = end + tail.size();

  typename E::Shdr sections[kSections]{};
  sections[kWeights] =
      Section<E>(sizeof kSectionNames, SHT_PROGBITS, kSectionOffset, size, kWeightAlignment);
  sections[kWeights].sh_flags =
      static_cast<decltype(sections[0].sh_flags)>(SHF_ALLOC | target.weight_section_flags);
  sections[kSymtab] = Section<E>(kSymtabName, SHT_SYMTAB, symtab, sizeof symbols, 8);
  sections[kSymtab].sh_link = kStrtab;
  sections[kSymtab].sh_info = 1;  // the first symbol that is not local
  sections[kSymtab].sh_entsize = sizeof symbols[0];
  sections[kStrtab] = Section<E>(kStrtabName, SHT_STRTAB, strtab, strings.size(), 1);
  sections[kShstrtab] = Section<E>(kShstrtabName, SHT_STRTAB, shstrtab, names.size(), 1);
  sections[kNote] = Section<E>(kNoteName, SHT_PROGBITS, headers, 0, 1);  // no executable stack
  tail += BytesOf(sections);
  return {std::string(BytesOf(FileHeader<E>(target, headers))), tail};
}

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
    : path_(std::move(path)), fd_(fd), target_(target), symbol_(std::move(symbol)) {}

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
                                   static_cast<off_t>(kSectionOffset + size_), path_));
  } else {
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::Status WeightsWriter::Flush() {
  QUENCH_RETURN_IF_ERROR(
      WriteAt(fd_, buffer_, static_cast<off_t>(kSectionOffset + size_ - buffer_.size()), path_));
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
  const auto [head, tail] = target_.pointer_bits == 64 ? Tables<Elf64>(target_, symbol_, size_)
                                                       : Tables<Elf32>(target_, symbol_, size_);
  QUENCH_RETURN_IF_ERROR(WriteAt(fd_, head, 0, path_));
  return WriteAt(fd_, tail, static_cast<off_t>(kSectionOffset + size_), path_);
}

}  // namespace quench::codegen
