// Any text gives a name or an error, and an accepted name is printed and parsed to itself and could
// be a file's name.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "common/blobs/digest.h"
#include "common/blobs/uploads.h"
#include "common/rpc/resource_name.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::cerr << what << "\n";
  std::abort();
}

void Check(const absl::StatusOr<quench::rpc::ResourceName>& name, bool is_upload) {
  if (!name.ok()) return;
  Require(quench::IsDigest(name->blob.hash), "the hash is none: " + name->blob.hash);
  Require(name->blob.size <= uint64_t{INT64_MAX}, "the size is beyond the wire's");
  Require(is_upload == quench::IsUploadId(name->upload_id), "the upload's id is not one");
  const std::string text = quench::rpc::FormatResourceName(*name);
  const auto again =
      is_upload ? quench::rpc::ParseWriteName(text) : quench::rpc::ParseReadName(text);
  Require(again.ok() && *again == *name, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Check(quench::rpc::ParseReadName(text), false);
  Check(quench::rpc::ParseWriteName(text), true);
  return 0;
}
