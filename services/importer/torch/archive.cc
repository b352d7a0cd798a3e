#include "services/importer/torch/archive.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/printable.h"
#include "common/base/status.h"

namespace quench::importer {
namespace {

constexpr std::string_view kLocalSignature = "PK\x03\x04";
constexpr std::string_view kCentralSignature = "PK\x01\x02";
constexpr std::string_view kEndSignature = "PK\x05\x06";
constexpr std::string_view kEnd64Signature = "PK\x06\x06";
constexpr std::string_view kEnd64LocatorSignature = "PK\x06\x07";
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr size_t kCentralBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 65535;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in the zip64 field
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint64_t kMaxEntries = 100'000;
constexpr size_t kMaxName = 4096;
constexpr uint64_t kMaxUnpacked = uint64_t{4} << 30;
constexpr uint64_t kMaxRatio = 1000;                      // deflate reaches 1,032 with zeros
constexpr uint64_t kFreeBytes = 1 << 20;                  // below, the ratio says nothing
constexpr uint32_t kTypeMask = 0170000, kLink = 0120000;  // of a Unix mode

using Bytes = std::span<const std::byte>;

// Little-endian, at an offset that the caller has checked.
template <typename T>
T Load(Bytes bytes, size_t offset) {
  T value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool StartsWith(Bytes bytes, size_t offset, std::string_view signature) {
  return offset <= bytes.size() && bytes.size() - offset >= signature.size() &&
         std::memcmp(bytes.data() + offset, signature.data(), signature.size()) == 0;
}

struct Directory {
  uint64_t entries = 0, size = 0, offset = 0;
};

absl::StatusOr<Directory> FindDirectory(Bytes file) {
  if (file.size() < kEndBytes) return InvalidArgument("the archive is cut off");
  const size_t last = file.size() - kEndBytes;
  const size_t first = last - std::min(last, kMaxComment);
  for (size_t at = last + 1; at-- > first;) {
    if (!StartsWith(file, at, kEndSignature)) continue;
    Directory found{Load<uint16_t>(file, at + 10), Load<uint32_t>(file, at + 12),
                    Load<uint32_t>(file, at + 16)};
    const bool small = found.entries != 0xffff && found.size != kIn64 && found.offset != kIn64;
    if (!small && at >= kLocatorBytes &&
        StartsWith(file, at - kLocatorBytes, kEnd64LocatorSignature)) {
      const auto end = Load<uint64_t>(file, at - kLocatorBytes + 8);
      if (end > file.size() || file.size() - end < kEnd64Bytes ||
          !StartsWith(file, static_cast<size_t>(end), kEnd64Signature))
        return InvalidArgument("the archive is damaged: its directory is not where it says");
      const auto at64 = static_cast<size_t>(end);
      found = {Load<uint64_t>(file, at64 + 32), Load<uint64_t>(file, at64 + 40),
               Load<uint64_t>(file, at64 + 48)};
    }
    return found;
  }
  return InvalidArgument("the archive is cut off: it has no directory");
}

// Sizes and offset that do not fit 32 bits stand in an extra field, in this order.
absl::Status ReadExtra64(Bytes extra, std::span<uint64_t* const> wanted) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = Load<uint16_t>(extra, at), size = Load<uint16_t>(extra, at + 2);
    if (extra.size() - at - 4 < size) break;
    if (id == 1) {
      size_t field = at + 4;
      for (uint64_t* number : wanted) {
        if (*number != kIn64) continue;
        if (field + 8 > at + 4 + size) return InvalidArgument("a zip64 field is too short");
        *number = Load<uint64_t>(extra, field);
        field += 8;
      }
      return absl::OkStatus();
    }
    at += 4 + size_t{size};
  }
  return absl::OkStatus();
}

bool LeavesFolder(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos) return true;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

bool LooksLikeZip(std::span<const std::byte> bytes) {
  return StartsWith(bytes, 0, kLocalSignature);
}

absl::StatusOr<std::shared_ptr<const TorchArchive>> TorchArchive::Open(TorchBytes file) {
  auto archive = std::make_shared<TorchArchive>();
  archive->file_ = std::move(file);
  QUENCH_RETURN_IF_ERROR(archive->List());
  archive->StripFolder();
  return std::shared_ptr<const TorchArchive>(std::move(archive));
}

absl::Status TorchArchive::List() {
  const Bytes file = file_.bytes;
  QUENCH_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(file));
  if (directory.entries > kMaxEntries) {
    return absl::ResourceExhaustedError(fmt::format(
        "the archive has {} entries, at most {} are read", directory.entries, kMaxEntries));
  }
  if (directory.offset > file.size() || file.size() - directory.offset < directory.size)
    return InvalidArgument("the archive is damaged: its directory lies outside of it");
  const Bytes records =
      file.subspan(static_cast<size_t>(directory.offset), static_cast<size_t>(directory.size));
  uint64_t unpacked = 0;
  size_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (!StartsWith(records, at, kCentralSignature) || records.size() - at < kCentralBytes)
      return InvalidArgument("the archive is damaged at entry {} of its directory", i);
    const size_t name = Load<uint16_t>(records, at + 28);
    const size_t all =
        kCentralBytes + name + Load<uint16_t>(records, at + 30) + Load<uint16_t>(records, at + 32);
    if (records.size() - at < all)
      return InvalidArgument("the archive is damaged at entry {} of its directory", i);
    if (name > kMaxName) return InvalidArgument("entry {} has a name of {} bytes", i, name);
    std::string text(reinterpret_cast<const char*>(records.data()) + at + kCentralBytes, name);
    const absl::Status added = AddEntry(records.subspan(at, all), text, unpacked);
    if (!added.ok()) return Annotate(added, fmt::format("entry `{}`", Printable(text)));
    at += all;
  }
  return absl::OkStatus();
}

absl::Status TorchArchive::AddEntry(Bytes record, std::string name, uint64_t& unpacked) {
  if (name.ends_with('/')) return absl::OkStatus();  // a folder
  if (LeavesFolder(name)) return InvalidArgument("its name leaves the archive's folder");
  constexpr uint16_t kEncrypted = 1;
  if ((Load<uint16_t>(record, 8) & kEncrypted) != 0) return InvalidArgument("is encrypted");
  // Version 3 in the upper byte: made on Unix, the mode stands in the upper half of the attributes.
  if (Load<uint16_t>(record, 4) >> 8 == 3 &&
      ((Load<uint32_t>(record, 38) >> 16) & kTypeMask) == kLink)
    return InvalidArgument("is a symbolic link");
  Entry entry;
  entry.method = Load<uint16_t>(record, 10);
  entry.checksum = Load<uint32_t>(record, 16);
  entry.packed = Load<uint32_t>(record, 20);
  entry.unpacked = Load<uint32_t>(record, 24);
  uint64_t header = Load<uint32_t>(record, 42);
  const size_t extra = kCentralBytes + Load<uint16_t>(record, 28);
  QUENCH_RETURN_IF_ERROR(
      ReadExtra64(record.subspan(extra, Load<uint16_t>(record, 30)),
                  std::array<uint64_t*, 3>{&entry.unpacked, &entry.packed, &header}));
  const Bytes file = file_.bytes;
  if (header > file.size() || file.size() - header < kLocalBytes ||
      !StartsWith(file, static_cast<size_t>(header), kLocalSignature))
    return InvalidArgument("does not begin where the archive's directory says");
  const auto local = static_cast<size_t>(header);
  entry.offset =
      header + kLocalBytes + Load<uint16_t>(file, local + 26) + Load<uint16_t>(file, local + 28);
  if (entry.offset > file.size() || file.size() - entry.offset < entry.packed)
    return InvalidArgument("ends behind the end of the archive");
  if (entry.method != kStored && entry.method != kDeflated)
    return InvalidArgument("is packed by method {}, only deflate is read", entry.method);
  if (entry.method == kStored && entry.packed != entry.unpacked)
    return InvalidArgument("is stored as it is, but {} bytes are announced to be {}", entry.packed,
                           entry.unpacked);
  if (entry.method == kDeflated) {
    unpacked += std::min(entry.unpacked, kMaxUnpacked);
    if (entry.unpacked > kMaxUnpacked || unpacked > kMaxUnpacked ||
        (entry.unpacked > kFreeBytes && entry.unpacked / kMaxRatio > entry.packed)) {
      return absl::ResourceExhaustedError(
          fmt::format("unpacks to {} bytes from {}; at most {} GiB in all and a thousandfold are "
                      "unpacked",
                      entry.unpacked, entry.packed, kMaxUnpacked >> 30));
    }
  }
  if (!entries_.emplace(std::move(name), entry).second) return InvalidArgument("is there twice");
  return absl::OkStatus();
}

void TorchArchive::StripFolder() {
  if (entries_.empty()) return;
  const std::string& first = entries_.begin()->first;
  const size_t slash = first.find('/');
  if (slash == std::string::npos) return;
  const std::string folder = first.substr(0, slash + 1);
  // Sorted: between a first and a last name that begin alike, all do.
  if (!entries_.rbegin()->first.starts_with(folder)) return;
  std::map<std::string, Entry> stripped;
  for (const auto& [name, entry] : entries_) stripped.emplace(name.substr(folder.size()), entry);
  entries_ = std::move(stripped);
  folder_ = folder;
}

std::vector<std::string> TorchArchive::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

absl::StatusOr<TorchBytes> TorchArchive::Inflate(const std::string& name, const Entry& entry,
                                                 Bytes packed) const {
  const auto buffer = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(entry.unpacked));
  z_stream stream{};
  constexpr int kRawDeflate = -15;
  if (inflateInit2(&stream, kRawDeflate) != Z_OK)
    return absl::ResourceExhaustedError("no memory to unpack an archive");
  size_t taken = 0, made = 0;
  int code = Z_OK;
  constexpr size_t kPiece = size_t{1} << 30;
  while (code == Z_OK) {
    const size_t in = std::min(packed.size() - taken, kPiece);
    const size_t out = std::min(buffer->size() - made, kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(buffer->data() + made);
    stream.avail_out = static_cast<uInt>(out);
    code = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (code != Z_STREAM_END || made != buffer->size())
    return InvalidArgument("`{}` is damaged: it cannot be unpacked", Printable(name));
  return TorchBytes{*buffer, buffer};
}

absl::StatusOr<TorchBytes> TorchArchive::Read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return InvalidArgument("the archive has no `{}`", Printable(name));
  const Entry& entry = found->second;
  const Bytes packed =
      file_.bytes.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.packed));
  TorchBytes result{packed, file_.owner};
  if (entry.method == kDeflated) {
    QUENCH_ASSIGN_OR_RETURN(result, Inflate(name, entry, packed));
  }
  const auto* data = reinterpret_cast<const Bytef*>(result.bytes.data());
  if (crc32_z(0, data, result.bytes.size()) != entry.checksum)
    return InvalidArgument("`{}` is damaged: its checksum differs", Printable(name));
  return result;
}

}  // namespace quench::importer
