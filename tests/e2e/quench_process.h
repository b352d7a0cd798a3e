// Runs the real `quench` binary in a fresh folder with a fresh cache.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"

namespace quench::testing {

struct Outcome {
  int exit_code = -1;  // 128 + N when signal N ended it
  std::string out;
  std::string err;
  int most_threads = 0;  // that it was seen to have at once
};

class Workspace {
 public:
  explicit Workspace(std::string quench = QUENCH_BINARY);
  std::filesystem::path path(const std::string& name) const { return dir_->path() / name; }
  // Runs that `quench` with the workspace as its current folder and waits (120 s at most).
  // `interrupt_when` sends SIGINT once that text appears on stderr.
  Outcome Run(const std::vector<std::string>& arguments,
              const std::string& interrupt_when = "") const;
  // The same for any program in PATH.
  Outcome RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                     const std::string& interrupt_when = "") const;
  void Write(const std::string& name, const std::string& contents) const;
  std::vector<std::string> Files() const;  // names in the workspace, cache aside, sorted

 private:
  std::string quench_;
  std::unique_ptr<TempDir> dir_;
};

// A command that runs `script` where a file system of `kilobytes` is mounted at `folder` of the
// workspace, for nobody else to see. It fails where there is no right to mount.
std::vector<std::string> SmallDiskCommand(const Workspace& work, const std::string& folder,
                                          int kilobytes, const std::string& script);

// x is added to a state, which begins with 10: y and next are the sum.
inline constexpr char kSumsModule[] = R"(quench.ir 1
module "sums" canonical {
  meta "state.total" = "next"
  meta "state_initial.total" = "10"
  input %x: f32[2]
  input %total: f32[2]
  %y = Add(%x, %total)
  %next = Add(%total, %x)
  output %y
  output %next
}
)";

// The digits network that is part of the project.
std::string DigitsModel();

}  // namespace quench::testing
