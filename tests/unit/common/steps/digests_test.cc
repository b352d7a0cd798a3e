#include "common/steps/digests.h"

#include <gtest/gtest.h>

#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "quench/codegen/v1/codegen.pb.h"
#include "quench/importer/v1/importer.pb.h"

namespace quench::steps::digests_test {
namespace {

const std::string kHashA = Sha256Hex("a"), kHashB = Sha256Hex("b");

void Fill(const std::string& hash, int64_t size,
          build::bazel::remote::execution::v2::Digest* digest) {
  digest->set_hash(hash);
  digest->set_size_bytes(size);
}

codegen::v1::CompileRequest Request() {
  codegen::v1::CompileRequest request;
  Fill(kHashA, 1, request.mutable_module()->mutable_digest());
  request.mutable_target()->set_name("x86-64");
  return request;
}

std::string Key(const codegen::v1::CompileRequest& request, const std::string& tenant = "t",
                const std::string& build = "b", const std::string& cpu = "") {
  return StepKey("quench.codegen.v1.Codegen/Compile", request, tenant, build, cpu);
}

TEST(DigestsTest, FindsEachBlobOnceWhereverItStands) {
  importer::v1::ImportRequest request;
  Fill(kHashA, 1, request.mutable_model()->mutable_file());
  Fill(kHashB, 2, request.mutable_model()->add_external_data()->mutable_digest());
  Fill(kHashA, 1, request.mutable_options()->add_freeze()->mutable_tensor());
  request.mutable_options()->add_freeze()->mutable_tensor();
  EXPECT_EQ(DigestsIn(request), (std::vector<BlobId>{{kHashA, 1}, {kHashB, 2}}));
}

TEST(DigestsTest, EveryWrongDigestIsNamed) {
  importer::v1::ImportRequest request;
  Fill("../../etc/passwd", 1, request.mutable_model()->mutable_file());
  Fill(kHashA, -1, request.mutable_model()->add_external_data()->mutable_digest());
  const absl::Status status = CheckDigests(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto fields = rpc::FieldsOf(status);
  ASSERT_EQ(fields.size(), 2u);
  EXPECT_EQ(fields[0].field, "model.file");
  EXPECT_EQ(fields[1].field, "model.external_data[0].digest");
}

TEST(StepKeyTest, WhoAsksAndWhatDigestsSayAnywayDoesNotMatter) {
  const auto plain = Request();
  auto full = plain;
  full.mutable_step()->set_request_id("id");
  full.mutable_step()->set_cache(step::v1::CACHE_MODE_REFRESH);
  full.mutable_module()->set_fingerprint(kHashB);
  Fill(kHashB, 3, full.mutable_module()->add_blobs());
  EXPECT_EQ(Key(plain), Key(full));
  EXPECT_TRUE(IsDigest(Key(plain)));
}

TEST(StepKeyTest, EverythingElseDoes) {
  const auto plain = Request();
  std::set<std::string> keys = {Key(plain), Key(plain, "u"), Key(plain, "t", "c"),
                                Key(plain, "t", "b", "avx2")};
  keys.insert(StepKey("quench.codegen.v1.Codegen/Package", plain, "t", "b", ""));
  auto changed = plain;
  changed.mutable_step()->set_salt("s");
  keys.insert(Key(changed));
  changed = plain;
  changed.mutable_options()->set_opt_level(0);
  keys.insert(Key(changed));
  changed = plain;
  Fill(kHashB, 1, changed.mutable_module()->mutable_digest());
  keys.insert(Key(changed));
  EXPECT_EQ(keys.size(), 8u);
}

}  // namespace
}  // namespace quench::steps::digests_test
