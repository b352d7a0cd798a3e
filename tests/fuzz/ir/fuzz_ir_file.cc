// Any bytes as a module's file, in any of its forms, give a legal graph or an error that says what is wrong, and an accepted graph
// survives the form that holds its weights. A file that names `m` as the one with its weights names itself.
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "common/ir/wire/module_file.h"
#include "tests/fuzz/ir/check.h"

namespace {

using quench::fuzz::Require;

// Lives as long as the process: the folder is in memory where the system has one.
const std::filesystem::path& Folder() {
  static const auto* const folder = [] {
    const std::filesystem::path memory = "/dev/shm";
    return new quench::TempDir(*quench::TempDir::Create(
        std::filesystem::is_directory(memory) ? memory : std::filesystem::path()));
  }();
  return folder->path();
}

// A store that is empty each time, made when a text brings weights.
class FreshStore : public quench::BlobStore {
 public:
  ~FreshStore() override {
    if (store_ == nullptr) return;
    store_.reset();
    std::filesystem::remove_all(Folder() / "store");
  }
  absl::StatusOr<std::unique_ptr<quench::BlobWriter>> Create() override {
    if (store_ == nullptr) store_ = *quench::LocalBlobStore::Open(Folder() / "store");
    return store_->Create();
  }
  absl::StatusOr<std::shared_ptr<const quench::FileMapping>> Open(
      const std::string& digest) override {
    if (store_ == nullptr) return absl::NotFoundError("the store is empty");
    return store_->Open(digest);
  }
  bool Contains(const std::string& digest) override {
    return store_ != nullptr && store_->Contains(digest);
  }

 private:
  std::shared_ptr<quench::LocalBlobStore> store_;
};

absl::StatusOr<quench::Graph> Read(const std::filesystem::path& path, quench::BlobStore& store) {
  const auto file = quench::FileMapping::Open(path);
  Require(file.ok(), file.status().ToString());
  return quench::ReadModule(*file, Folder(), store);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path given = Folder() / "m", whole = Folder() / "whole";
  Require(quench::WriteFileAtomically(given, {reinterpret_cast<const char*>(data), size}).ok(),
          "the file cannot be written");
  FreshStore store;
  const absl::StatusOr<quench::Graph> graph = Read(given, store);
  if (!graph.ok()) {
    Require(!quench::MessageOf(graph.status()).empty(), "an error says nothing");
    return 0;
  }
  // A text may leave types out, and have names that are not UTF-8: neither can be written in the other form.
  const bool text = quench::IsTextModule({reinterpret_cast<const char*>(data), size});
  const absl::Status legal = quench::VerifyGraph(*graph);
  Require(legal.ok() || text, legal.ToString());
  if (!legal.ok()) return 0;
  const absl::Status written = quench::WriteModuleFile(*graph, whole);
  Require(written.ok() || text, written.ToString());
  if (!written.ok()) return 0;
  quench::fuzz::EmptyStore nothing;
  const absl::StatusOr<quench::Graph> again = Read(whole, nothing);
  Require(again.ok(), again.status().ToString());
  const std::string difference = quench::FirstDifference(*graph, *again);
  Require(difference.empty(), difference);
  Require(quench::Fingerprint(*again) == quench::Fingerprint(*graph), "the fingerprint changed");
  return 0;
}
