#include "common/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <span>

namespace quench {
namespace {

// The notes of one segment: name and contents, each padded to 4 bytes.
std::string BuildIdIn(std::span<const unsigned char> notes) {
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    const size_t content = sizeof header + padded(header.n_namesz);
    const size_t end = content + padded(header.n_descsz);
    if (end > notes.size()) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(notes.data() + sizeof header, "GNU", 4) == 0) {
      return fmt::format("{:02x}", fmt::join(notes.subspan(content, header.n_descsz), ""));
    }
    notes = notes.subspan(end);
  }
  return "";
}

// The program itself is the first object that is reported.
int Visit(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // The loader gives addresses as integers.  NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* start = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const std::string id = BuildIdIn({start, segment.p_memsz});
    if (id.empty()) continue;
    *static_cast<std::string*>(result) = id;
    break;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(Visit, &id);
  return id;
}

std::string SourceRevision() { return QUENCH_REVISION; }

}  // namespace quench
