#include "common/runner/unpack.h"

#include "common/base/status.h"
#include "common/ir/zip_archive.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

bool StaysWithin(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return !normal.empty() && normal.is_relative() && *normal.begin() != "..";
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnpackedArchive>> UnpackedArchive::Open(const fs::path& path,
                                                                       const StepContext& context) {
  const std::string name = path.filename().string();
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<ZipArchive> archive,
                          ZipArchive::Open(path, "", {1'000'000, uint64_t{64} << 30}));
  QUENCH_ASSIGN_OR_RETURN(TempDir folder, TempDir::Create());
  const auto count = static_cast<int64_t>(archive->members().size());
  for (size_t i = 0; i < archive->members().size(); ++i) {
    QUENCH_RETURN_IF_ERROR(context.Check());
    context.Report({"unpack", name, static_cast<int64_t>(i), count});
    const std::string& member = archive->members()[i].name;
    if (member.ends_with('/')) continue;
    if (!StaysWithin(member))
      return InvalidArgument("`{}`: entry `{}` would lie outside of its folder", name, member);
    const fs::path file = folder.path() / fs::path(member).lexically_normal();
    std::error_code error;
    fs::create_directories(file.parent_path(), error);
    if (error) return ErrnoStatus(error.value(), "create", file.parent_path());
    QUENCH_ASSIGN_OR_RETURN(const std::string bytes, archive->Read(i));
    QUENCH_RETURN_IF_ERROR(WriteFileAtomically(file, bytes));
  }
  std::unique_ptr<UnpackedArchive> unpacked(new UnpackedArchive(std::move(folder)));
  unpacked->samples_ = unpacked->folder_.path();
  std::error_code error;
  const fs::directory_iterator first(unpacked->samples_, error);
  if (!error && first != fs::directory_iterator() &&
      std::distance(first, fs::directory_iterator()) == 1) {
    const fs::path only = fs::directory_iterator(unpacked->samples_, error)->path();
    if (fs::is_directory(only, error)) unpacked->samples_ = only;
  }
  return unpacked;
}

}  // namespace quench
