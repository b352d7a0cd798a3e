#include "tests/e2e/quench_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

extern char** environ;

namespace quench::testing {
namespace {

constexpr auto kLimit = std::chrono::seconds(120);

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  void CloseWriter() {
    close(ends[1]);
    ends[1] = -1;
  }
};

// Appends what can be read; false at end of file.
bool Drain(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count > 0) text.append(buffer, static_cast<size_t>(count));
  return count > 0;
}

int ThreadsOf(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  }
  return 0;
}

}  // namespace

Workspace::Workspace(std::string quench) : quench_(std::move(quench)) {
  auto dir = TempDir::Create();
  EXPECT_TRUE(dir.ok()) << dir.status();
  dir_ = std::make_unique<TempDir>(*std::move(dir));
}

Outcome Workspace::Run(const std::vector<std::string>& arguments,
                       const std::string& interrupt_when) const {
  return RunProgram(quench_, arguments, interrupt_when);
}

Outcome Workspace::RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                              const std::string& interrupt_when) const {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = {"XDG_CACHE_HOME=" + (dir_->path() / ".cache").string()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string(*variable).rfind("XDG_CACHE_HOME=", 0) != 0) variables.emplace_back(*variable);
  }
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);

  Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, dir_->path().c_str());
  pid_t child = -1;
  EXPECT_EQ(posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), envp.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  out.CloseWriter();
  err.CloseWriter();

  Outcome outcome;
  bool interrupted = false;
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    pollfd polled[2] = {{out_open ? out.ends[0] : -1, POLLIN, 0},
                        {err_open ? err.ends[0] : -1, POLLIN, 0}};
    poll(polled, 2, 5);
    outcome.most_threads = std::max(outcome.most_threads, ThreadsOf(child));
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << program << " ran for more than two minutes";
      kill(child, SIGKILL);
    }
    if (polled[0].revents != 0) out_open = Drain(out.ends[0], outcome.out);
    if (polled[1].revents != 0) err_open = Drain(err.ends[0], outcome.err);
    if (!interrupt_when.empty() && !interrupted &&
        outcome.err.find(interrupt_when) != std::string::npos) {
      interrupted = true;
      kill(child, SIGINT);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void Workspace::Write(const std::string& name, const std::string& contents) const {
  ASSERT_TRUE(WriteFileAtomically(path(name), contents).ok());
}

std::vector<std::string> Workspace::Files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_->path())) {
    if (entry.path().filename() != ".cache") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> SmallDiskCommand(const Workspace& work, const std::string& folder,
                                          int kilobytes, const std::string& script) {
  std::filesystem::create_directory(work.path(folder));
  const std::string mount = "mount -t tmpfs -o size=" + std::to_string(kilobytes) + "k none " +
                            work.path(folder).string();
  std::vector<std::string> command = {"unshare", "--mount", "sh", "-c",
                                      mount + " && { " + script + "; }"};
  if (geteuid() != 0) command.insert(command.begin() + 1, "--map-root-user");
  return command;
}

std::string DigitsModel() { return QUENCH_SOURCE_DIR "/bench/models/digits.onnx"; }

}  // namespace quench::testing
