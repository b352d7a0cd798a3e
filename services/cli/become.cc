#include <unistd.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/remote.h"

namespace quench::cli {

absl::Status Become(const std::string& program, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / program).string();
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::UnavailableError(fmt::format(
        "`{}` is not beside `quench`: build it with `cmake --build build/release --target {}`",
        program, program));
  }
  std::vector<std::string> words = {path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(path.c_str(), pointers.data());
  return ErrnoStatus(errno, "start", path);
}

}  // namespace quench::cli
