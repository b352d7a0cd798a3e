#include "services/gateway/blobs/samples.h"

#include <grpcpp/grpcpp.h>

#include "common/ir/npy.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/blobs/blob_server.h"

namespace quench::gateway::samples_test {
namespace {

using absl::StatusCode;
using quench::testing::HasSubstr;

class SamplesTest : public BlobServerTest {
 protected:
  void SetUp() override {
    BlobServerTest::SetUp();
    server_->max_bytes = 2'000'000;
    ASSERT_EQ(server_->Start(), absl::OkStatus());
    stub_ = v1::Samples::NewStub(server_->channel->grpc());
  }

  absl::StatusOr<v1::UploadSamplesResponse> Upload(
      const std::vector<v1::UploadSamplesRequest>& requests) {
    rpc::ClientCall call(*server_->channel, {});
    v1::UploadSamplesResponse response;
    const auto writer = stub_->UploadSamples(call.context(), &response);
    for (const v1::UploadSamplesRequest& request : requests) {
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    QUENCH_RETURN_IF_ERROR(rpc::FromGrpc(writer->Finish()));
    return response;
  }
  absl::Status Refused(const std::vector<v1::UploadSamplesRequest>& requests) {
    const auto response = Upload(requests);
    EXPECT_FALSE(response.ok());
    return response.status();
  }
  Tensor Stored(const step::v1::File& file) {
    const auto tenant = server_->folders->Of("");
    EXPECT_TRUE(tenant.ok()) << tenant.status();
    const auto blob = (*tenant)->store->Open(file.digest().hash());
    EXPECT_TRUE(blob.ok()) << blob.status();
    const std::string_view bytes(reinterpret_cast<const char*>((*blob)->bytes().data()),
                                 (*blob)->bytes().size());
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), file.digest().size_bytes());
    const auto tensor = ParseNpy(bytes, file.path());
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? *tensor : Tensor();
  }

  std::unique_ptr<v1::Samples::Stub> stub_;
};

v1::UploadSamplesRequest Begin(int64_t sample, const std::string& input,
                               const std::vector<int64_t>& dims, const std::string& data,
                               ir::v1::ElementType type = ir::v1::ELEMENT_TYPE_F32) {
  v1::UploadSamplesRequest request;
  request.mutable_tensor()->set_sample(sample);
  request.mutable_tensor()->set_input(input);
  request.mutable_tensor()->set_type(type);
  request.mutable_tensor()->mutable_dims()->Assign(dims.begin(), dims.end());
  request.set_data(data);
  return request;
}

v1::UploadSamplesRequest GoesOn(const std::string& data) {
  v1::UploadSamplesRequest request;
  request.set_data(data);
  return request;
}

TEST_F(SamplesTest, TensorsBecomeFilesOfTheirSample) {
  const std::string text = RandomText(1, 600'000);
  const auto response = Upload(
      {Begin(0, "in/x:0", {3, 50'000}, text.substr(0, 100)), GoesOn(text.substr(100, 300'000)),
       GoesOn(text.substr(300'100)), Begin(0, "scalar", {}, "\x01", ir::v1::ELEMENT_TYPE_BOOL),
       Begin(1, "in/x:0", {0, 7}, ""),
       Begin(1, "scalar", {1}, std::string(8, 5), ir::v1::ELEMENT_TYPE_I64)});
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->samples_size(), 4);
  EXPECT_EQ(response->samples(0).path(), "000000/in_x_0.npy");
  const Tensor first = Stored(response->samples(0));
  EXPECT_EQ(first.dtype(), DataType::kF32);
  EXPECT_EQ(first.dims(), (std::vector<int64_t>{3, 50'000}));
  EXPECT_TRUE(std::equal(first.bytes().begin(), first.bytes().end(), Bytes(text).begin()));
  EXPECT_EQ(Stored(response->samples(1)).dims(), std::vector<int64_t>());
  EXPECT_EQ(response->samples(2).path(), "000001/in_x_0.npy");
  EXPECT_EQ(Stored(response->samples(2)).dims(), (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(Stored(response->samples(3)).IntAt(0), 0x0505050505050505);
}

TEST_F(SamplesTest, WhatIsWrongIsNamed) {
  const std::string four(16, 'x');
  const auto expect = [&](const std::vector<v1::UploadSamplesRequest>& requests,
                          const std::string& text) {
    const absl::Status status = Refused(requests);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(text));
  };
  expect({}, "no tensor");
  expect({GoesOn(four)}, "`tensor` is missing");
  expect({Begin(0, "x", {5}, four)}, "000000/x.npy ends after 16 of 20 bytes");
  expect({Begin(0, "x", {5}, four), Begin(1, "x", {4}, four)}, "16 of 20");
  expect({Begin(7, "x", {3}, four)}, "000007/x.npy has 16 bytes, 4 more");
  expect({Begin(0, "x", {4}, four), GoesOn("y")}, "1 more");
  expect({Begin(0, "a/b", {4}, four), Begin(0, "a_b", {4}, four)},
         "sample 0 has inputs `a/b` and `a_b`");
  expect({Begin(0, "", {4}, four)}, "1 to 251 bytes");
  expect({Begin(0, "a\nb", {4}, four)}, "control characters");
  expect({Begin(0, std::string(252, 'n'), {4}, four)}, "1 to 251 bytes");
  expect({Begin(-1, "x", {4}, four)}, "numbered from 0");
  expect({Begin(1'000'000, "x", {4}, four)}, "numbered from 0 to 999999");
  expect({Begin(0, "x", {-4}, four)}, "negative");
  expect({Begin(0, "x", {int64_t{1} << 40, int64_t{1} << 40}, four)}, "more than");
  expect({Begin(0, "x", std::vector<int64_t>(33, 1), four)}, "rank 33");
  expect({Begin(0, "x", {4}, four, ir::v1::ELEMENT_TYPE_STRING)}, "no dtype for string");
  expect({Begin(0, "x", {4}, four, ir::v1::ELEMENT_TYPE_UNSPECIFIED)}, "no dtype");
  expect({Begin(0, "x", {4}, four, static_cast<ir::v1::ElementType>(9999))}, "not an element type");
}

TEST_F(SamplesTest, AFullStoreIsSaid) {
  EXPECT_EQ(
      Refused({Begin(0, "x", {1'000'000}, std::string(3'000'000, 'x'), ir::v1::ELEMENT_TYPE_F32)})
          .code(),
      StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace quench::gateway::samples_test
