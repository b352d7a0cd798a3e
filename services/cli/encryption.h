// Encrypted libraries: sealing what was compiled, and the key that opens one.
#pragma once

#include <absl/status/statusor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/runner/runner.h"
#include "services/cli/options.h"

namespace quench::cli {

// ---- opening ----

struct KeyFlags {
  std::string key;
  std::string password_file;
};
void AddKeyFlags(const Options& options, const std::shared_ptr<KeyFlags>& flags);
// Reads the password from its file, or asks for it on the terminal where the key is sealed.
absl::StatusOr<ArtifactKey> KeyOf(const KeyFlags& flags);

// ---- sealing ----

struct EncryptFlags {
  bool encrypt = false;
  std::string password_file;
  std::string recipient;
};
void AddEncryptFlags(const Options& options, const std::shared_ptr<EncryptFlags>& flags);

struct Encryption {
  std::optional<std::string> password;  // of the fresh key
  std::string recipient;                // where there is no password
};
// Encryption that the flags ask for, absent without any; asks twice for a password that no file has.
absl::StatusOr<std::optional<Encryption>> EncryptionOf(const EncryptFlags& flags);

// A folder whose files exist in memory only, for what is not encrypted yet.
absl::StatusOr<TempDir> MemoryFolder();

// Writes `library` to `sealed` in the age format: to the recipient, or to a fresh identity, which
// becomes `key`, sealed with the password.
absl::Status EncryptLibrary(const Encryption& how, const std::filesystem::path& library,
                            const std::filesystem::path& sealed, const std::filesystem::path& key);

}  // namespace quench::cli
