#include "common/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace quench {
namespace {

using Id = std::array<unsigned char, 20>;  // a SHA-1

// The build id among the notes of one segment: each note is a name and contents, each padded to 4 bytes.
std::optional<Id> BuildIdIn(std::span<const unsigned char> notes) {
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    const size_t content = sizeof header + padded(header.n_namesz);
    const size_t end = content + padded(header.n_descsz);
    if (end > notes.size()) break;
    Id id;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && header.n_descsz == id.size() &&
        std::memcmp(notes.data() + sizeof header, "GNU", 4) == 0) {
      std::memcpy(id.data(), notes.data() + content, id.size());
      return id;
    }
    notes = notes.subspan(end);
  }
  return std::nullopt;
}

// The program itself is the first object that is reported, without a name. Builds for tests keep our code in libraries.
bool IsOurs(std::string_view path) {
  return path.empty() || path.substr(path.rfind('/') + 1).starts_with("libquench_");
}

int Visit(dl_phdr_info* info, size_t, void* result) {
  if (!IsOurs(info->dlpi_name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    // The loader gives addresses as integers.  NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* start = reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr);
    const std::optional<Id> id = BuildIdIn({start, segment.p_memsz});
    if (!id) continue;
    auto& all = *static_cast<std::optional<Id>*>(result);
    if (!all) all.emplace();
    std::transform(id->begin(), id->end(), all->begin(), all->begin(), std::bit_xor());
    break;
  }
  return 0;
}

}  // namespace

std::string BuildId() {
  std::optional<Id> id;
  dl_iterate_phdr(Visit, &id);
  return id ? fmt::format("{:02x}", fmt::join(*id, "")) : "";
}

std::string SourceRevision() { return QUENCH_REVISION; }

}  // namespace quench
