// The common `ar` format: a magic line, then members, each behind a 60-byte text header; member `/`
// is the symbol index (big-endian count, member offsets, names), `//` the table of long member
// names, not needed here.
#include <cstdio>
#include <fstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/codegen/link/link.h"

namespace quench::codegen {
namespace {

std::string MemberHeader(const std::string& name, uint64_t size) {
  return fmt::format("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", name, 0, 0, 0, "100644", size);
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>((value >> shift) & 0xff));
  return bytes;
}

}  // namespace

absl::Status WriteArchive(const std::filesystem::path& object, const std::string& member,
                          const std::string& symbol, const std::filesystem::path& output) {
  QUENCH_CHECK(member.size() < 16);  // longer ones need the table of names
  QUENCH_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(object));
  const std::span<const std::byte> bytes = mapping->bytes();
  if (bytes.size() > 9'999'999'999u)
    return absl::ResourceExhaustedError("an archive member takes at most 10 GB");

  std::string names = symbol + '\0';
  if (names.size() % 2 != 0) names += '\0';
  const std::string magic = "!<arch>\n";
  const uint64_t index_size = 4 + 4 + names.size();
  const uint32_t offset = static_cast<uint32_t>(magic.size() + 60 + index_size);
  const std::string head = magic + MemberHeader("/", index_size) + BigEndian(1) +
                           BigEndian(offset) + names + MemberHeader(member + "/", bytes.size());

  std::ofstream file(output, std::ios::binary | std::ios::trunc);
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (bytes.size() % 2 != 0) file.put('\n');
  file.close();
  if (!file) return ErrnoStatus(errno, "write", output);
  return absl::OkStatus();
}

}  // namespace quench::codegen
