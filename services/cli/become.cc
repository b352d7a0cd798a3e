#include <unistd.h>

#include <filesystem>
#include <optional>

#include "common/base/files.h"
#include "common/base/status.h"
#include "services/cli/remote.h"

namespace quench::cli {
namespace {

std::optional<std::vector<std::string>> successor;  // the words of its command line

}  // namespace

absl::Status Become(const std::string& program, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / program).string();
  if (::access(path.c_str(), X_OK) != 0) {
    return absl::UnavailableError(fmt::format(
        "`{}` is not beside `quench`: build it with `cmake --build build/release --target {}`",
        program, program));
  }
  successor = {path};
  successor->insert(successor->end(), arguments.begin(), arguments.end());
  return absl::AbortedError(fmt::format("`{}` goes on with it", program));
}

absl::Status StartSuccessor() {
  if (!successor) return absl::OkStatus();
  std::vector<char*> pointers;
  for (std::string& word : *successor) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  return ErrnoStatus(errno, "start", successor->front());
}

}  // namespace quench::cli
