#include "common/steps/gpus.h"

#include <gtest/gtest.h>

#include "common/rpc/errors.h"
#include "common/runner/device.h"
#include "quench/analyser/v1/analyser.pb.h"
#include "quench/codegen/v1/codegen.pb.h"

namespace quench::steps::gpus_test {
namespace {

analyser::v1::BenchmarkRequest On(const std::string& device) {
  analyser::v1::BenchmarkRequest request;
  request.set_device(device);
  return request;
}

TEST(GpusTest, NamesOfDevices) {
  EXPECT_EQ(GpuOf("cuda"), 0u);
  EXPECT_EQ(GpuOf("cuda:0"), 0u);
  EXPECT_EQ(GpuOf("cuda:12"), 12u);
  EXPECT_TRUE(NamesDevice("cpu"));
  for (const char* wrong : {"", "cpu0", "cuda:", "cuda:-1", "cuda:x", "cuda:1234567", "gpu"}) {
    EXPECT_FALSE(NamesDevice(wrong)) << wrong;
    EXPECT_FALSE(GpuOf(wrong)) << wrong;
  }
}

TEST(GpusTest, StepsAskForThem) {
  EXPECT_TRUE(HasDevice(On("")));
  EXPECT_EQ(DeviceOf(On("cuda")), "cuda");
  EXPECT_FALSE(HasDevice(codegen::v1::PackageRequest()));
  EXPECT_EQ(DeviceOf(codegen::v1::PackageRequest()), "");
}

TEST(GpusTest, AServerTakesWhatItHas) {
  const Gpus none{{}, "no driver"}, two{{"A (sm_80)", "B (sm_80)"}, "there is no GPU 2"};
  for (const char* device : {"", "cpu", "cuda", "cuda:1"})
    EXPECT_EQ(CheckDevice(On(device), two, "s"), absl::OkStatus()) << device;
  for (const char* device : {"", "cpu"})
    EXPECT_EQ(CheckDevice(On(device), none, "s"), absl::OkStatus()) << device;
  const absl::Status refused = CheckDevice(On("cuda"), none, "analyser@host/7");
  EXPECT_EQ(rpc::ReasonOf(refused), "NO_DEVICE");
  EXPECT_EQ(refused.message(), "`analyser@host/7` has none (no driver)");
  EXPECT_EQ(ServerOf(refused), "analyser@host/7");
  EXPECT_TRUE(rpc::RetryAfterOf(refused));
  EXPECT_EQ(CheckDevice(On("cuda:2"), two, "s").message(), "`s` has none (there is no GPU 2)");
  EXPECT_EQ(rpc::FieldsOf(CheckDevice(On("gpu"), two, "s"))[0].field, "device");
  EXPECT_EQ(ServerOf(absl::UnavailableError("x")), "");
}

}  // namespace
}  // namespace quench::steps::gpus_test
