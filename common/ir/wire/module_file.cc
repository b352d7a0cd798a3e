#include "common/ir/wire/module_file.h"

#include <absl/strings/escaping.h>

#include <array>
#include <cstring>
#include <map>

#include "common/base/atomic_file.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/ir/constants.h"
#include "common/ir/wire/module_text.h"
#include "common/ir/wire/span_blobs.h"
#include "common/ir/wire/wire.h"
#include "common/ir/wire/wire_scan.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

// As in PNG, line ends and the end of file of other systems show what copied a file as text.
constexpr std::string_view kMagic = "\x89quench.qir\r\n\x1a\n\x01";
constexpr size_t kHeaderBytes = 48;  // the magic, then numbers of 8 bytes:
constexpr size_t kModuleAt = 16, kCountAt = 24, kNameAt = 32;  // sizes of module, index and name
constexpr size_t kReservedAt = 40;                             // 0
constexpr size_t kEntryBytes = 48;                             // a digest, an offset, a size
constexpr size_t kDigestBytes = 32;
constexpr size_t kMaxName = 255;
constexpr uint64_t kAlignment = 64;

uint64_t Aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

void AppendNumber(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

uint64_t NumberAt(std::span<const std::byte> bytes, size_t offset) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) value = value << 8 | static_cast<uint64_t>(bytes[offset + i]);
  return value;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// `name`: of the file that has the blobs instead.
absl::Status AppendContainer(AtomicFile& file, const std::string& module,
                             const std::vector<SpanBlob>& blobs, const std::string& name) {
  if (name.size() > kMaxName)
    return InvalidArgument("the name `{}` is longer than {} bytes", name, kMaxName);
  std::string head(kMagic);
  for (const uint64_t number : {module.size(), blobs.size(), name.size(), size_t{0}})
    AppendNumber(head, number);
  uint64_t end = head.size() + blobs.size() * kEntryBytes + name.size() + module.size();
  for (const SpanBlob& blob : blobs) {
    head += absl::HexStringToBytes(blob.digest);
    AppendNumber(head, Aligned(end));
    AppendNumber(head, blob.size);
    end = Aligned(end) + blob.size;
  }
  head += name + module;
  QUENCH_RETURN_IF_ERROR(file.Append(BytesOf(head)));
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  for (const SpanBlob& blob : blobs) {
    const uint64_t padding = Aligned(file.size()) - file.size();
    QUENCH_RETURN_IF_ERROR(file.Append(std::span(kZeros).first(padding)));
    for (const std::span<const std::byte> piece : blob.pieces)
      QUENCH_RETURN_IF_ERROR(file.Append(piece));
  }
  return absl::OkStatus();
}

// The file and the one beside it with the weights, once all of both is written.
absl::Status CommitBeside(AtomicFile& file, const fs::path& path,
                          const std::vector<SpanBlob>& blobs) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> weights,
                          AtomicFile::Create(WeightsFileOf(path)));
  QUENCH_RETURN_IF_ERROR(AppendContainer(*weights, "", blobs, ""));
  QUENCH_RETURN_IF_ERROR(weights->Commit());
  return file.Commit();
}

// A file that AppendContainer wrote, and whose extents were found to lie within it.
struct Container {
  std::shared_ptr<const FileMapping> file;
  std::span<const std::byte> module;
  std::string name;
  struct Extent {
    uint64_t offset, size;
  };
  std::map<std::string, Extent> blobs;  // by digest
};

absl::StatusOr<Container> OpenContainer(std::shared_ptr<const FileMapping> file) {
  const std::span<const std::byte> bytes = file->bytes();
  if (!IsModuleFile(TextOf(bytes))) return InvalidArgument("it is not a file of this form");
  const auto cut = [&](size_t at, const std::string& problem) {
    return InvalidArgument("the file is cut off or damaged: byte {}: {}, and the file has {}", at,
                           problem, bytes.size());
  };
  if (bytes.size() < kHeaderBytes)
    return cut(bytes.size(), fmt::format("its header takes {} bytes", kHeaderBytes));
  const uint64_t module = NumberAt(bytes, kModuleAt), count = NumberAt(bytes, kCountAt),
                 name = NumberAt(bytes, kNameAt);
  uint64_t left = bytes.size() - kHeaderBytes;
  if (count > left / kEntryBytes) {
    return cut(kCountAt, fmt::format("{} blobs of weights take {} bytes each in the index", count,
                                     kEntryBytes));
  }
  left -= count * kEntryBytes;
  if (name > left) return cut(kNameAt, fmt::format("a name takes {} bytes", name));
  if (module > left - name) return cut(kModuleAt, fmt::format("the module takes {} bytes", module));
  if (name > kMaxName || NumberAt(bytes, kReservedAt) != 0)
    return InvalidArgument("the file was written by a newer version, or is damaged: byte {}",
                           name > kMaxName ? kNameAt : kReservedAt);
  Container found;
  found.file = std::move(file);
  uint64_t end = kHeaderBytes + count * kEntryBytes;
  found.name = TextOf(bytes.subspan(end, name));
  found.module = bytes.subspan(end + name, module);
  end += name + module;
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = kHeaderBytes + i * kEntryBytes;
    const Container::Extent extent{NumberAt(bytes, at + kDigestBytes),
                                   NumberAt(bytes, at + kDigestBytes + 8)};
    // Extents that overlap would let a small file claim the work of a large one.
    if (extent.offset < end || extent.offset > bytes.size() ||
        extent.size > bytes.size() - extent.offset) {
      return cut(
          at + kDigestBytes,
          fmt::format("blob {} of {} takes {} bytes at {}, where it must lie at {} or behind", i,
                      count, extent.size, extent.offset, end));
    }
    end = extent.offset + extent.size;
    const std::string_view digest = TextOf(bytes.subspan(at, kDigestBytes));
    found.blobs[absl::BytesToHexString({digest.data(), digest.size()})] = extent;
  }
  return found;
}

// The blobs of a container, and those of a store.
class ContainerBlobs final : public BlobStore {
 public:
  ContainerBlobs(const Container& container, BlobStore& others)
      : container_(container), others_(others) {}

  absl::StatusOr<std::unique_ptr<BlobWriter>> Create() override { return others_.Create(); }
  bool Contains(const std::string& digest) override {
    return container_.blobs.contains(digest) || others_.Contains(digest);
  }
  absl::StatusOr<std::shared_ptr<const FileMapping>> Open(const std::string& digest) override {
    const auto found = container_.blobs.find(digest);
    if (found == container_.blobs.end()) return others_.Open(digest);
    std::shared_ptr<const FileMapping> part =
        FileMapping::Part(container_.file, found->second.offset, found->second.size);
    if (Sha256Hex(part->bytes()) != digest)
      return absl::DataLossError(
          fmt::format("the weights are damaged: byte {}: blob `{}` of {} bytes has other bytes",
                      found->second.offset, digest, found->second.size));
    return part;
  }

 private:
  const Container& container_;
  BlobStore& others_;
};

absl::StatusOr<Container> OpenBeside(const std::string& name, const fs::path& folder) {
  if (folder.empty())
    return InvalidArgument(
        "the weights lie in a file `{}` beside the module, and there is none here: write the "
        "module without "
        "--external-weights",
        name);
  if (name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
    return InvalidArgument("the weights lie in `{}`, which must be a file beside the module", name);
  const absl::StatusOr<std::shared_ptr<const FileMapping>> file = FileMapping::Open(folder / name);
  if (!file.ok()) return Annotate(file.status(), "the weights lie beside the module");
  absl::StatusOr<Container> container = OpenContainer(*file);
  if (!container.ok()) return Annotate(container.status(), fmt::format("weights `{}`", name));
  return container;
}

absl::StatusOr<Graph> ReadText(const std::shared_ptr<const FileMapping>& file,
                               const fs::path& folder, BlobStore& store) {
  QUENCH_ASSIGN_OR_RETURN(ModuleText text, SplitModuleText(TextOf(file->bytes())));
  if (text.weights_file.empty()) {
    QUENCH_ASSIGN_OR_RETURN(const auto held, StoreWeights(text, store));
    return ParseGraph(text.module, ConstantLoaderFrom(store));
  }
  QUENCH_ASSIGN_OR_RETURN(const Container beside, OpenBeside(text.weights_file, folder));
  ContainerBlobs blobs(beside, store);
  return ParseGraph(text.module, ConstantLoaderFrom(blobs));
}

absl::StatusOr<Graph> ReadContainer(const std::shared_ptr<const FileMapping>& file,
                                    const fs::path& folder, BlobStore& store) {
  QUENCH_ASSIGN_OR_RETURN(const Container container, OpenContainer(file));
  if (container.module.empty())
    return InvalidArgument("it has the weights of a module, and no module");
  if (container.module.size() > kMaxModuleBytes)
    return absl::ResourceExhaustedError(fmt::format("the module has {} bytes, at most {} are read",
                                                    container.module.size(), kMaxModuleBytes));
  const auto read = [&](const Container& weights) -> absl::StatusOr<Graph> {
    ContainerBlobs blobs(weights, store);
    absl::StatusOr<Graph> graph = ParseModule(std::string(TextOf(container.module)), blobs);
    if (graph.ok()) return graph;
    const auto offset = container.module.data() - file->bytes().data();
    return Annotate(graph.status(), fmt::format("the module at byte {}", offset));
  };
  if (container.name.empty()) return read(container);
  QUENCH_ASSIGN_OR_RETURN(const Container beside, OpenBeside(container.name, folder));
  return read(beside);
}

}  // namespace

fs::path WeightsFileOf(const fs::path& module) { return module.string() + ".weights"; }

bool IsModuleFile(std::string_view head) { return head.starts_with(kMagic); }

absl::Status WriteModuleFile(const Graph& graph, const fs::path& path, WeightsIn weights) {
  SpanBlobs blobs;
  QUENCH_ASSIGN_OR_RETURN(const std::string module, SerializeModule(graph, blobs));
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  if (weights == WeightsIn::kFile || blobs.blobs().empty()) {
    QUENCH_RETURN_IF_ERROR(AppendContainer(*file, module, blobs.blobs(), ""));
    return file->Commit();
  }
  const std::string name = WeightsFileOf(path).filename();
  QUENCH_RETURN_IF_ERROR(AppendContainer(*file, module, {}, name));
  return CommitBeside(*file, path, blobs.blobs());
}

absl::Status WriteTextModuleFile(const Graph& graph, const fs::path& path, WeightsIn weights,
                                 const PrintOptions& options) {
  SpanBlobs blobs;
  WeightPlaces places(blobs);
  QUENCH_RETURN_IF_ERROR(places.Add(graph));
  PrintOptions print = options;
  print.places = &places;
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  QUENCH_RETURN_IF_ERROR(file->Append(BytesOf(PrintGraph(graph, print))));
  if (weights == WeightsIn::kFile || blobs.blobs().empty()) {
    for (const SpanBlob& blob : blobs.blobs()) QUENCH_RETURN_IF_ERROR(AppendWeights(blob, *file));
    return file->Commit();
  }
  const std::string name = WeightsFileOf(path).filename();
  QUENCH_RETURN_IF_ERROR(file->Append(BytesOf(WeightsFileLine(name))));
  return CommitBeside(*file, path, blobs.blobs());
}

absl::StatusOr<Graph> ReadModule(const std::shared_ptr<const FileMapping>& file,
                                 const fs::path& folder, BlobStore& store) {
  const std::string_view bytes = TextOf(file->bytes());
  if (IsTextModule(bytes.substr(0, 64))) return ReadText(file, folder, store);
  if (IsModuleFile(bytes)) return ReadContainer(file, folder, store);
  if (!IsSerializedModule(bytes))
    return InvalidArgument("it is not an IR module, neither serialised nor as text");
  if (bytes.size() > kMaxModuleBytes) {
    return absl::ResourceExhaustedError(
        fmt::format("the module has {} bytes, at most {} are read", bytes.size(), kMaxModuleBytes));
  }
  return ParseModule(std::string(bytes), store);
}

}  // namespace quench
