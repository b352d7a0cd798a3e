// A program that runs beside the test: a server.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace quench::testing {

class Background {
 public:
  // Starts it; what it writes goes to the file `log`. `variables` come before the environment's.
  Background(const std::vector<std::string>& command, const std::filesystem::path& log,
             const std::vector<std::string>& variables = {});
  // Kills it if it still runs.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  pid_t pid() const { return pid_; }
  // Whether `text` appears in its log within 30 s.
  bool WaitForLog(const std::string& text) const;
  std::string Log() const;
  // The text after `before` in the log, up to a comma, a space or the end of the line: an address.
  std::string FromLog(const std::string& before) const;

  void Signal(int signal) const;
  // Its exit code within 60 s, 128 + N when signal N ended it; -1 when it did not end.
  int Wait();

 private:
  pid_t pid_ = -1;
  std::filesystem::path log_;
};

}  // namespace quench::testing
