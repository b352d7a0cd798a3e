#include "services/codegen/object/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "common/base/status.h"
#include "common/runtime/abi.h"

namespace quench::codegen {
namespace {

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

// An architecture in ELF. Weights lie far from code where a near address could not reach past them.
struct Machine {
  uint32_t machine;       // QUENCH_MACHINE_*
  uint16_t number;        // in the header
  const char* emulation;  // lld's -m
  const char* weight_section;
  uint64_t weight_flags;
};
constexpr uint64_t kLargeSection = 0x10000000;  // SHF_X86_64_LARGE, which glibc's elf.h lacks
constexpr Machine kMachines[] = {
    {QUENCH_MACHINE_X86_64, EM_X86_64, "elf_x86_64", ".lrodata", kLargeSection},
    {QUENCH_MACHINE_X86, EM_386, "elf_i386", ".rodata.weights", 0},
    {QUENCH_MACHINE_AARCH64, EM_AARCH64, "aarch64linux", ".rodata.weights", 0},
    {QUENCH_MACHINE_ARMV7, EM_ARM, "armelf_linux_eabi", ".rodata.weights", 0},
};

const Machine& MachineOf(const Target& target) {
  const Machine* const found =
      std::find_if(std::begin(kMachines), std::end(kMachines),
                   [&](const Machine& each) { return each.machine == target.machine; });
  QUENCH_CHECK(found != std::end(kMachines));  // architectures.def has a row that is missing here
  return *found;
}

// How functions are called: linkers refuse to mix objects that differ.
uint32_t FlagsOf(const Target& target) {
  if (target.machine != QUENCH_MACHINE_ARMV7) return 0;
  return EF_ARM_EABI_VER5 |
         (target.soft_float_calls ? EF_ARM_ABI_FLOAT_SOFT : EF_ARM_ABI_FLOAT_HARD);
}

template <typename E>
typename E::Ehdr FileHeader(const Target& target, uint64_t section_headers) {
  typename E::Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = E::kClass;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = MachineOf(target).number;
  header.e_version = EV_CURRENT;
  header.e_flags = FlagsOf(target);
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

// The header, and the tables after the weights.
template <typename E>
WeightObject Tables(const Target& target, const std::string& symbol, uint64_t size) {
  const Machine& machine = MachineOf(target);
  const std::string names =
      std::string(kSectionNames, sizeof kSectionNames) + machine.weight_section + '\0';
  const std::string strings = std::string(1, '\0') + symbol + '\0';
  typename E::Sym symbols[2]{};
  symbols[1].st_name = 1;
  symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  symbols[1].st_other = STV_HIDDEN;
  symbols[1].st_shndx = kWeights;
  symbols[1].st_size = static_cast<decltype(symbols[1].st_size)>(size);

  const uint64_t end = kElf.weights_offset + size;
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
      Section<E>(sizeof kSectionNames, SHT_PROGBITS, kElf.weights_offset, size, kWeightAlignment);
  sections[kWeights].sh_flags =
      static_cast<decltype(sections[0].sh_flags)>(SHF_ALLOC | machine.weight_flags);
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

std::vector<std::string> Linker(const Target& target) {
  return {"ld.lld", "-m", MachineOf(target).emulation, "--threads=1", "--build-id=none"};
}

}  // namespace

WeightObject ElfWeightObject(const Target& target, const std::string& symbol, uint64_t size) {
  return target.pointer_bits == 64 ? Tables<Elf64>(target, symbol, size)
                                   : Tables<Elf32>(target, symbol, size);
}

std::vector<std::string> ElfSharedArguments(const Target& target, const std::string& name) {
  std::vector<std::string> args = Linker(target);
  // Bionic before API 23 knows the older table only; its pages have 16 KiB from Android 15 on.
  args.emplace_back(target.android ? "--hash-style=both" : "--hash-style=gnu");
  if (target.android) args.insert(args.end(), {"-z", "max-page-size=16384"});
  for (const char* arg : {"-shared", "-z", "defs", "-z", "now", "-z", "relro", "--strip-all",
                          "--gc-sections", "-soname"}) {
    args.emplace_back(arg);
  }
  args.push_back(name);
  return args;
}

std::vector<std::string> ElfRelocatableArguments(const Target& target) {
  std::vector<std::string> args = Linker(target);
  args.emplace_back("-r");
  return args;
}

}  // namespace quench::codegen
