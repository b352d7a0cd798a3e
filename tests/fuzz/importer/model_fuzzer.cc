// Any bytes as a model of one format (QUENCH_FUZZ_FORMAT): an import or an error, and an import gives graphs that verify.
#include <cstdlib>
#include <fstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/blobs/blob_store.h"
#include "common/ir/verify.h"
#include "services/importer/importer.h"

namespace {

// Lives as long as the process: the folder is in memory where the system has one.
struct Workplace {
  quench::TempDir folder;
  std::shared_ptr<quench::LocalBlobStore> store;
};

Workplace& Place() {
  static auto* const place = [] {
    const std::filesystem::path memory = "/dev/shm";
    auto folder = quench::TempDir::Create(
        std::filesystem::is_directory(memory) ? memory : std::filesystem::path());
    QUENCH_CHECK(folder.ok());
    auto store = quench::LocalBlobStore::Open(folder->path() / "store");
    QUENCH_CHECK(store.ok());
    return new Workplace{*std::move(folder), *std::move(store)};
  }();
  return *place;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path path = Place().folder.path() / "model." QUENCH_FUZZ_FORMAT;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  quench::importer::ImportOptions options;
  options.format = QUENCH_FUZZ_FORMAT;
  const auto result = quench::importer::ImportModel(path, options, *Place().store);
  if (!result.ok()) {
    QUENCH_CHECK(!quench::MessageOf(result.status()).empty());
    return 0;
  }
  QUENCH_CHECK(quench::VerifyGraph(result->imported).ok());
  QUENCH_CHECK(quench::VerifyGraph(result->canonical).ok());
  return 0;
}
