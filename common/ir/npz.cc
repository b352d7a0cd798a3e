#include "common/ir/npz.h"

#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/ir/zip_archive.h"

namespace quench {

absl::StatusOr<std::map<std::string, Tensor>> ReadNpz(const std::filesystem::path& path,
                                                      const std::string& shown) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<ZipArchive> archive, ZipArchive::Open(path, shown));
  std::map<std::string, Tensor> arrays;
  for (size_t i = 0; i < archive->members().size(); ++i) {
    const std::string& member = archive->members()[i].name;
    if (!member.ends_with(".npy")) continue;
    const std::string where = fmt::format("{}:{}", shown.empty() ? path.string() : shown, member);
    QUENCH_ASSIGN_OR_RETURN(const std::string bytes, archive->Read(i));
    QUENCH_ASSIGN_OR_RETURN(arrays[member.substr(0, member.size() - 4)], ParseNpy(bytes, where));
  }
  return arrays;
}

}  // namespace quench
