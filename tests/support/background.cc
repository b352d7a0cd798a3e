#include "tests/support/background.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/support/wait.h"

extern char** environ;

namespace quench::testing {

Background::Background(const std::vector<std::string>& command, const std::filesystem::path& log,
                       const std::vector<std::string>& variables)
    : log_(log) {
  std::vector<std::string> words = command, environment = variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& ours : variables) replaced = replaced || ours.starts_with(name);
    if (!replaced) environment.push_back(text);
  }
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  EXPECT_EQ(posix_spawnp(&pid_, words[0].c_str(), &actions, nullptr, argv.data(), envp.data()), 0)
      << words[0];
  posix_spawn_file_actions_destroy(&actions);
}

Background::~Background() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string Background::Log() const {
  const auto text = ReadFile(log_);
  return text.ok() ? *text : "";
}

bool Background::WaitForLog(const std::string& text) const {
  return WaitFor([&] { return Log().find(text) != std::string::npos; }, std::chrono::seconds(30));
}

std::string Background::FromLog(const std::string& before) const {
  const std::string log = Log();
  const size_t start = log.rfind(before);
  if (start == std::string::npos) return "";
  const size_t from = start + before.size();
  return log.substr(from, log.find_first_of(", \n", from) - from);
}

void Background::Signal(int signal) const { kill(pid_, signal); }

int Background::Wait() {
  int status = 0;
  const bool ended =
      WaitFor([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, std::chrono::seconds(60));
  if (!ended) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace quench::testing
