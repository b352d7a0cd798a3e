#include "services/cli/encryption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/age.h"
#include "common/runtime/crypto.h"

namespace quench::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPassword = 1024;

// The first line of a file.
absl::StatusOr<std::string> PasswordIn(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error) && fs::file_size(path, error) > 64 * kMostPassword)
    return InvalidArgument("password file `{}` is too large to be one", path);
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
      return InvalidArgument("there is no terminal to ask for a password: --password-file has it");
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
  QUENCH_ASSIGN_OR_RETURN(const std::string second, terminal.Ask("the same again: "));
  if (first != second) return InvalidArgument("the two passwords differ");
  return first;
}

absl::Status NoCrypto() {
  const char* reason = quench_crypto_load();
  return absl::ResourceExhaustedError(
      fmt::format("cannot encrypt: {}", reason == nullptr ? "out of memory" : reason));
}

// Header and chunks of `text` into a new file that only its owner reads.
absl::Status WriteSealed(std::span<const unsigned char> header, const unsigned char key[32],
                         std::span<const std::byte> text, const fs::path& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(header.data()),
             static_cast<std::streamsize>(header.size()));
  std::vector<unsigned char> sealed(size_t{QUENCH_AGE_CHUNK} + QUENCH_TAG_BYTES);
  uint64_t index = 0;
  do {
    const auto piece = text.first(std::min<size_t>(text.size(), QUENCH_AGE_CHUNK));
    text = text.subspan(piece.size());
    if (quench_age_chunk(key, index++, text.empty() ? 1 : 0,
                         reinterpret_cast<const unsigned char*>(piece.data()), piece.size(),
                         sealed.data()) == 0) {
      return NoCrypto();
    }
    file.write(reinterpret_cast<const char*>(sealed.data()),
               static_cast<std::streamsize>(piece.size() + QUENCH_TAG_BYTES));
  } while (!text.empty());
  file.close();
  return file ? absl::OkStatus() : ErrnoStatus(errno, "write", path);
}

struct FileHeader {
  std::array<unsigned char, QUENCH_AGE_HEADER_BYTES> bytes;
  size_t size = 0;
  std::array<unsigned char, 32> key;
  std::span<const unsigned char> used() const { return std::span(bytes).first(size); }
};

absl::Status SealKey(const std::array<unsigned char, 32>& secret, const std::string& password,
                     const fs::path& path) {
  FileHeader header;
  char text[QUENCH_AGE_IDENTITY_TEXT];
  quench_age_identity_text(secret.data(), text);
  const std::string line = std::string(text) + "\n";
  if (quench_age_begin_password(password.data(), password.size(), QUENCH_AGE_USUAL_WORK,
                                header.bytes.data(), &header.size, header.key.data()) == 0) {
    return NoCrypto();
  }
  QUENCH_RETURN_IF_ERROR(
      WriteSealed(header.used(), header.key.data(), std::as_bytes(std::span(line)), path));
  std::error_code error;
  fs::permissions(path, fs::perms(0600), error);
  return error ? ErrnoStatus(error.value(), "restrict", path) : absl::OkStatus();
}

}  // namespace

void AddKeyFlags(const Options& options, const std::shared_ptr<KeyFlags>& flags) {
  options.Add("--key", flags->key,
              "Of an encrypted library: its modelKey.bin, or a file with an age identity", "FILE");
  options
      .Add("--password-file", flags->password_file,
           "Its first line opens modelKey.bin (default: asked for on the terminal)", "FILE")
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

void AddEncryptFlags(const Options& options, const std::shared_ptr<EncryptFlags>& flags) {
  options.Flag("--encrypt", flags->encrypt,
               "Encrypt model.so to a fresh key, modelKey.bin, which a password opens: asked for "
               "twice, or in --password-file");
  options.Add("--password-file", flags->password_file, "Its first line is the password", "FILE")
      .Needs({"--encrypt"});
  options
      .Add("--recipient", flags->recipient,
           "Encrypt model.so to whoever has the identity of this age recipient", "age1...")
      .Excludes({"--encrypt"});
}

absl::StatusOr<std::optional<Encryption>> EncryptionOf(const EncryptFlags& flags) {
  if (!flags.encrypt && flags.recipient.empty()) return std::nullopt;
  if (quench_crypto_load() != nullptr) return NoCrypto();
  Encryption how;
  if (!flags.recipient.empty()) {
    if (quench_age_parse_recipient(flags.recipient.c_str(), how.recipient.data()) == 0) {
      return InvalidArgument(
          "recipient `{}` is none of age's: `age1` and 58 letters and digits, as age-keygen prints",
          flags.recipient.substr(0, 80));
    }
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
        fmt::format("cannot encrypt: the plain library is kept in memory, and {} is no file system "
                    "of that kind",
                    kMemory));
  }
  return TempDir::Create(kMemory);
}

absl::Status EncryptLibrary(const Encryption& how, const fs::path& library, const fs::path& sealed,
                            const fs::path& key) {
  std::array<unsigned char, 32> recipient = how.recipient;
  if (how.password) {
    std::array<unsigned char, 32> secret;
    if (quench_random(secret.data(), secret.size()) == 0 ||
        quench_x25519_public(secret.data(), recipient.data()) == 0) {
      return NoCrypto();
    }
    const absl::Status written = SealKey(secret, *how.password, key);
    explicit_bzero(secret.data(), secret.size());
    QUENCH_RETURN_IF_ERROR(written);
  }
  FileHeader header;
  if (quench_age_begin(recipient.data(), header.bytes.data(), &header.size, header.key.data()) == 0)
    return NoCrypto();
  QUENCH_ASSIGN_OR_RETURN(const auto plain, FileMapping::Open(library));
  return WriteSealed(header.used(), header.key.data(), plain->bytes(), sealed);
}

}  // namespace quench::cli
