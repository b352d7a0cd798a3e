#include "common/steps/provenance.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"

namespace quench::steps {
namespace {

namespace fs = std::filesystem;
using build::bazel::remote::execution::v2::ActionResult;

constexpr size_t kKeyBytes = 32;
constexpr size_t kMaxKeyBytes = 4096;

// The text that the record authenticates: each part behind its length.
std::string Signed(const char* what, const std::string& tenant, const std::string& hash) {
  return fmt::format("quench library {} 1 {}:{} {}", what, tenant.size(), tenant, hash);
}

std::string RecordOf(const std::string& tenant, const BlobId& library) {
  return Sha256Hex(Signed("record", tenant, library.hash));
}

// By one of those who may start at the same time: whole or not at all.
absl::Status MakeKey(const fs::path& file) {
  std::array<unsigned char, kKeyBytes> key{};
  if (RAND_bytes(key.data(), key.size()) != 1) return Internal("no random bytes for a key");
  std::string name = file.string() + ".XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return ErrnoStatus(errno, "create", file);
  const bool written =
      ::write(fd, key.data(), key.size()) == static_cast<ssize_t>(key.size()) && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  const bool linked = written && (::link(name.c_str(), file.c_str()) == 0 || errno == EEXIST);
  const int link_error = errno;
  ::unlink(name.c_str());
  if (!written) return ErrnoStatus(error, "write", file);
  return linked ? absl::OkStatus() : ErrnoStatus(link_error, "create", file);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Provenance>> Provenance::Open(const fs::path& file,
                                                                   bool make) {
  absl::StatusOr<std::string> key = ReadFile(file, kMaxKeyBytes);
  if (make && absl::IsNotFound(key.status())) {
    std::error_code error;
    fs::create_directories(file.parent_path(), error);
    QUENCH_RETURN_IF_ERROR(MakeKey(file));
    key = ReadFile(file, kMaxKeyBytes);
  }
  QUENCH_RETURN_IF_ERROR(key.status());
  if (key->size() < kKeyBytes) {
    return InvalidArgument("`{}` has {} bytes, a key of libraries has {} random ones at least",
                           file.string(), key->size(), kKeyBytes);
  }
  return std::make_shared<const Provenance>(*std::move(key));
}

std::string Provenance::Code(const std::string& tenant, const BlobId& library) const {
  const std::string message = Signed("made", tenant, library.hash);
  std::array<unsigned char, EVP_MAX_MD_SIZE> code{};
  unsigned size = 0;
  QUENCH_CHECK(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                    reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                    code.data(), &size) != nullptr);
  return {reinterpret_cast<const char*>(code.data()), size};
}

absl::Status Provenance::Attest(const std::string& tenant, const BlobId& library,
                                ActionCache& records, const StepContext& step) const {
  ActionResult record;
  auto* file = record.add_output_files();
  file->set_path("library");
  file->mutable_digest()->set_hash(library.hash);
  file->mutable_digest()->set_size_bytes(static_cast<int64_t>(library.size));
  record.set_stdout_raw(Code(tenant, library));
  return records.Put(RecordOf(tenant, library), record.SerializeAsString(), step);
}

absl::StatusOr<bool> Provenance::Knows(const std::string& tenant, const BlobId& library,
                                       ActionCache& records, const StepContext& step) const {
  QUENCH_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                          records.Get(RecordOf(tenant, library), step));
  ActionResult record;
  if (!bytes || !record.ParseFromString(*bytes)) return false;
  const std::string code = Code(tenant, library);
  return record.stdout_raw().size() == code.size() &&
         CRYPTO_memcmp(record.stdout_raw().data(), code.data(), code.size()) == 0;
}

}  // namespace quench::steps
