#include "services/cli/encryption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/age.h"
#include "common/runtime/crypto.h"
#include "common/runtime/quench_rt.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPassword = 1024;

// The first line of a file.
absl::StatusOr<std::string> PasswordIn(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) > 64 * kMostPassword)
    return InvalidArgument("password file `{}` is too large", path);
  QUENCH_ASSIGN_OR_RETURN(std::string password, ReadFile(path));
  password.resize(std::min(password.find('\n'), password.size()));
  if (!password.empty() && password.back() == '\r') password.pop_back();
  if (password.empty()) return InvalidArgument("password file `{}` has an empty first line", path);
  if (password.size() > kMostPassword || password.find('\0') != std::string::npos) {
    return InvalidArgument("the password in `{}` must have at most {} bytes, none of them zero",
                           path, kMostPassword);
  }
  return password;
}

// A terminal that shows nothing of what is typed.
class SilentTerminal {
 public:
  SilentTerminal() : fd_(::open("/dev/tty", O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0 || ::tcgetattr(fd_, &before_) != 0) return;
    termios silent = before_;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    silent.c_lflag |= ECHONL;
    usable_ = ::tcsetattr(fd_, TCSAFLUSH, &silent) == 0;
  }
  ~SilentTerminal() {
    if (usable_) ::tcsetattr(fd_, TCSAFLUSH, &before_);
    if (fd_ >= 0) ::close(fd_);
  }
  SilentTerminal(const SilentTerminal&) = delete;
  SilentTerminal& operator=(const SilentTerminal&) = delete;

  absl::StatusOr<std::string> Ask(const std::string& prompt) const {
    if (!usable_)
      return InvalidArgument("no terminal to ask for the password on: use --password-file");
    if (::write(fd_, prompt.data(), prompt.size()) < 0)
      return ErrnoStatus(errno, "write to", "/dev/tty");
    std::string password;
    char c = 0;
    while (::read(fd_, &c, 1) == 1 && c != '\n') {
      if (password.size() == kMostPassword)
        return InvalidArgument("the password has more than {} bytes", kMostPassword);
      password += c;
    }
    if (password.empty()) return InvalidArgument("the password is empty");
    return password;
  }

 private:
  int fd_;
  termios before_{};
  bool usable_ = false;
};

absl::StatusOr<std::string> AskTwice() {
  const SilentTerminal terminal;
  QUENCH_ASSIGN_OR_RETURN(std::string first, terminal.Ask("password for modelKey.bin: "));
  QUENCH_ASSIGN_OR_RETURN(const std::string second, terminal.Ask("repeat the password: "));
  if (first != second) return InvalidArgument("the two passwords differ");
  return first;
}

absl::Status NoCrypto() {
  const char* reason = quench_crypto_load();
  return absl::ResourceExhaustedError(
      fmt::format("cannot encrypt: {}", reason == nullptr ? "out of memory" : reason));
}

}  // namespace

void AddKeyFlags(const Options& all, const std::shared_ptr<KeyFlags>& flags) {
  const Options options = all.In("Encryption");
  options.Add("--key", flags->key,
              "modelKey.bin of an encrypted library, or a file with an age identity", "FILE");
  options
      .Add("--password-file", flags->password_file,
           "File whose first line is the password of modelKey.bin (default: ask on the terminal)",
           "FILE")
      .Needs({"--key"});
}

absl::StatusOr<ArtifactKey> KeyOf(const KeyFlags& flags) {
  ArtifactKey key{flags.key, std::nullopt};
  if (flags.key.empty()) return key;
  if (!flags.password_file.empty()) {
    QUENCH_ASSIGN_OR_RETURN(key.password, PasswordIn(flags.password_file));
    return key;
  }
  QUENCH_ASSIGN_OR_RETURN(const auto file, FileMapping::Open(flags.key));
  const auto bytes = file->bytes();
  if (quench_age_is(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) != 0) {
    QUENCH_ASSIGN_OR_RETURN(key.password,
                            SilentTerminal().Ask(fmt::format("password of {}: ", flags.key)));
  }
  return key;
}

void AddEncryptFlags(const Options& all, const std::shared_ptr<EncryptFlags>& flags) {
  const Options options = all.In("Encryption");
  options.Flag("--encrypt", flags->encrypt,
               "Encrypt model.so with a new key, stored in modelKey.bin and protected by a "
               "password (asked for twice, or read from --password-file)");
  options
      .Add("--password-file", flags->password_file, "File whose first line is the password", "FILE")
      .Needs({"--encrypt"});
  options
      .Add("--recipient", flags->recipient,
           "Encrypt model.so for the holder of this age recipient's identity", "age1...")
      .Excludes({"--encrypt"});
}

absl::StatusOr<std::optional<Encryption>> EncryptionOf(const EncryptFlags& flags) {
  if (!flags.encrypt && flags.recipient.empty()) return std::nullopt;
  if (quench_crypto_load() != nullptr) return NoCrypto();
  Encryption how;
  if (!flags.recipient.empty()) {
    std::array<unsigned char, 32> point;
    if (quench_age_parse_recipient(flags.recipient.c_str(), point.data()) == 0) {
      return InvalidArgument(
          "`{}` is not an age recipient: expected `age1` and 58 letters and digits, as printed by "
          "age-keygen",
          flags.recipient.substr(0, 80));
    }
    how.recipient = flags.recipient;
    return how;
  }
  if (flags.password_file.empty()) {
    QUENCH_ASSIGN_OR_RETURN(how.password, AskTwice());
  } else {
    QUENCH_ASSIGN_OR_RETURN(how.password, PasswordIn(flags.password_file));
  }
  return how;
}

absl::StatusOr<TempDir> MemoryFolder() {
  constexpr char kMemory[] = "/dev/shm";
  struct statfs about;
  if (::statfs(kMemory, &about) != 0 || about.f_type != TMPFS_MAGIC) {
    return absl::FailedPreconditionError(
        fmt::format("cannot encrypt: the unencrypted library must stay in memory, and {} is not an "
                    "in-memory file system",
                    kMemory));
  }
  return TempDir::Create(kMemory);
}

absl::Status EncryptLibrary(const Encryption& how, const fs::path& library, const fs::path& sealed,
                            const fs::path& key) {
  QUENCH_ASSIGN_OR_RETURN(const auto plain, FileMapping::Open(library));
  const char* password = how.password ? how.password->c_str() : nullptr;
  const char* recipient = how.password ? nullptr : how.recipient.c_str();
  quench_rt_error error;
  const int code = quench_rt_encrypt(plain->bytes().data(), plain->bytes().size(), sealed.c_str(),
                                     key.c_str(), password, recipient, &error);
  return code == QUENCH_RT_OK ? absl::OkStatus() : absl::ResourceExhaustedError(error.text);
}

}  // namespace quench::cli
