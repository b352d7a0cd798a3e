#include "common/steps/modules.h"

#include <set>

#include "common/base/status.h"
#include "common/ir/hash.h"
#include "common/ir/wire/module_file.h"
#include "common/ir/wire/wire.h"
#include "common/rpc/errors.h"

namespace quench::steps {
namespace {

absl::StatusOr<ir::v1::Stage> StageOf(const Graph& graph) {
  switch (graph.stage) {
    case Stage::kImported:
      return ir::v1::STAGE_IMPORTED;
    case Stage::kCanonical:
      return ir::v1::STAGE_CANONICAL;
    case Stage::kQuantized:
      return ir::v1::STAGE_QUANTIZED;
  }
  return Internal("a graph of an unknown stage");
}

}  // namespace

absl::StatusOr<Graph> LoadModule(const step::v1::Module& module, const std::string& field,
                                 LocalBlobStore& blobs) {
  if (!module.has_digest()) {
    return rpc::FieldError(field + ".digest", "missing, must be the digest of a module");
  }
  QUENCH_ASSIGN_OR_RETURN(const std::shared_ptr<const FileMapping> file,
                          blobs.Open(module.digest().hash()));
  // Nothing beside a blob could have its weights.
  absl::StatusOr<Graph> graph = ReadModule(file, "", blobs);
  if (!graph.ok()) return Annotate(graph.status(), field);
  return graph;
}

absl::StatusOr<step::v1::Module> StoreModule(Graph graph, LocalBlobStore& blobs) {
  graph = WithDigests(std::move(graph));
  step::v1::Module module;
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, SerializeModule(graph, blobs));
  QUENCH_ASSIGN_OR_RETURN(*module.mutable_digest(), StoreBytes(bytes, blobs));
  QUENCH_ASSIGN_OR_RETURN(const ir::v1::Stage stage, StageOf(graph));
  module.set_stage(stage);
  module.set_fingerprint(Fingerprint(graph));
  module.set_structure_hash(StructureHash(graph));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<std::string> digests, ModuleBlobs(bytes));
  for (const std::string& digest : digests) {
    const std::optional<uint64_t> size = blobs.SizeOf(digest);
    if (!size) return absl::NotFoundError(fmt::format("blob `{}` is not in the store", digest));
    BlobDigest* blob = module.add_blobs();
    blob->set_hash(digest);
    blob->set_size_bytes(static_cast<int64_t>(*size));
  }
  return module;
}

absl::StatusOr<BlobDigest> StoreBytes(const std::string& bytes, LocalBlobStore& blobs) {
  BlobDigest digest;
  QUENCH_ASSIGN_OR_RETURN(*digest.mutable_hash(),
                          blobs.Put(std::as_bytes(std::span(bytes.data(), bytes.size()))));
  digest.set_size_bytes(static_cast<int64_t>(bytes.size()));
  return digest;
}

absl::StatusOr<BlobDigest> MoveFile(const std::filesystem::path& path, LocalBlobStore& blobs,
                                    const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(const BlobId id, blobs.Adopt(path, context));
  BlobDigest digest;
  digest.set_hash(id.hash);
  digest.set_size_bytes(static_cast<int64_t>(id.size));
  return digest;
}

absl::StatusOr<DataType> StoredType(const step::v1::PassOptions& options,
                                    const std::string& field) {
  if (options.float16() && options.bfloat16())
    return rpc::FieldError(field + ".bfloat16", "set beside `float16`, takes one of the two");
  if (options.bfloat16()) return DataType::kBF16;
  return options.float16() ? DataType::kF16 : DataType::kF32;
}

bool IsRelativePath(const std::string& text) {
  const std::filesystem::path path(text);
  if (text.empty() || text.size() > 4096 || path.is_absolute()) return false;
  return text.find('\0') == std::string::npos &&
         std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

absl::Status LinkFiles(const google::protobuf::RepeatedPtrField<step::v1::File>& files,
                       const std::string& field, const std::filesystem::path& folder,
                       const LocalBlobStore& blobs) {
  std::vector<std::string> wrong;
  for (const step::v1::File& file : files) {
    if (!IsRelativePath(file.path())) wrong.push_back("`" + file.path().substr(0, 80) + "`");
  }
  if (!wrong.empty()) {
    wrong.resize(std::min<size_t>(wrong.size(), 20));
    return rpc::FieldError(
        field, fmt::format("paths must be relative, without `..`, of at most 4096 bytes: {}",
                           fmt::join(wrong, ", ")));
  }
  // As files and folders are: two of one name, or one within another, cannot be.
  std::set<std::filesystem::path> taken;
  for (const step::v1::File& file : files) {
    if (!taken.insert(std::filesystem::path(file.path()).lexically_normal()).second) {
      return rpc::FieldError(field, fmt::format("path `{}` comes twice", file.path()));
    }
  }
  for (const std::filesystem::path& path : taken) {
    for (auto above = path.parent_path(); !above.empty(); above = above.parent_path()) {
      if (!taken.contains(above)) continue;
      return rpc::FieldError(
          field, fmt::format("path `{}` is beneath the file `{}`", path.string(), above.string()));
    }
  }
  for (const step::v1::File& file : files) {
    const std::filesystem::path path = folder / file.path();
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return ErrnoStatus(error.value(), "create folder", file.path());
    QUENCH_RETURN_IF_ERROR(LinkBlob(file.digest(), path, blobs));
  }
  return absl::OkStatus();
}

absl::Status LinkBlob(const BlobDigest& digest, const std::filesystem::path& path,
                      const LocalBlobStore& blobs) {
  std::error_code error;
  // A relative target would be looked for beside the link.
  std::filesystem::create_symlink(std::filesystem::absolute(blobs.PathOf(digest.hash())), path,
                                  error);
  return error ? ErrnoStatus(error.value(), "link", path) : absl::OkStatus();
}

}  // namespace quench::steps
