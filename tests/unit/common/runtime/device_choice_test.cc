// The choice of a device for a session, and the sentences where it fails.
#include "tests/unit/common/runtime/device_model.h"
#include "tests/unit/common/runtime/device_support.h"
#include "tests/unit/common/runtime/fake_model.h"

namespace quench::device_test {
namespace {

using DeviceChoiceTest = DeviceTest;

constexpr char kGpu[] = "cuda:0 Quench emulated device";

TEST_F(DeviceChoiceTest, TheFirstGpuIsTheDefault) {
  Begin(device_line_query);
  EXPECT_STREQ(quench_rt_variant(model_)->name, "gpu");
  EXPECT_STREQ(quench_rt_session_variant(session_)->name, "gpu");
  EXPECT_STREQ(quench_rt_device(session_), kGpu);
}

TEST_F(DeviceChoiceTest, OptionsNameTheDevice) {
  ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
  for (const char* device : {"cuda", "cuda:0"}) {
    ASSERT_EQ(Start(device), QUENCH_RT_OK) << error_.text;
    EXPECT_STREQ(quench_rt_session_variant(session_)->name, "gpu");
    EXPECT_STREQ(quench_rt_device(session_), kGpu);
  }
  ASSERT_EQ(Start("cpu"), QUENCH_RT_OK) << error_.text;
  EXPECT_STREQ(quench_rt_session_variant(session_)->name, "plain");
  EXPECT_STREQ(quench_rt_device(session_), "cpu");
  const Floats x = {1, 2, 3};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(0), LineOf(x));
}

TEST_F(DeviceChoiceTest, OtherNamesAreRefused) {
  ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
  for (const char* device :
       {"", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda1", "cuda:99999999999"}) {
    EXPECT_EQ(Start(device), QUENCH_RT_INVALID) << device;
    EXPECT_EQ(error_.text, "there is no device `" + std::string(device) +
                               "`: it is `cpu`, `cuda` or `cuda:` and a number");
  }
  EXPECT_EQ(Start("cuda:1"), QUENCH_RT_DEVICE);
  EXPECT_STREQ(error_.text, "there is no GPU 1, the driver has 1");
}

TEST_F(DeviceChoiceTest, LibrariesMayLackCodeForADevice) {
  ASSERT_EQ(Open(device_gpu_only_query), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Start("cpu"), QUENCH_RT_CPU);
  EXPECT_STREQ(error_.text, "`line` has code for GPUs only");
  ASSERT_EQ(Open(fake_model_query), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Start("cuda"), QUENCH_RT_CPU);
  EXPECT_STREQ(error_.text, "`fake` has no code for GPUs");
  EXPECT_EQ(Open(device_new_only_query), QUENCH_RT_CPU);
  EXPECT_STREQ(error_.text,
               "`linked model` needs sm_90, GPU 0 (Quench emulated device) has emulated");
}

TEST_F(DeviceChoiceTest, CodeThatTheDriverDoesNotTake) {
  ASSERT_EQ(Open(device_damaged_query), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Start(), QUENCH_RT_DEVICE);
  EXPECT_STREQ(error_.text,
               "GPU 0 (Quench emulated device) does not take the model's code: not an image of the "
               "emulated device");
  EXPECT_EQ(session_, nullptr);
}

TEST_F(DeviceChoiceTest, GpusAreDescribed) {
  InProcess({{"QUENCH_EMULATED_DEVICES", "2"}, {"QUENCH_EMULATED_DRIVER", "12080"}}, [&] {
    quench_rt_gpu gpu{};
    gpu.size = sizeof gpu;
    ASSERT_EQ(quench_rt_find_gpu(1, &gpu, &error_), QUENCH_RT_OK) << error_.text;
    EXPECT_STREQ(gpu.name, "Quench emulated device");
    EXPECT_STREQ(gpu.arch, "emulated");
    EXPECT_EQ(gpu.features, QUENCH_CUDA_EMULATED);
    EXPECT_EQ(gpu.multiprocessors, 4u);
    EXPECT_EQ(gpu.memory, uint64_t{4} << 30);
    EXPECT_EQ(gpu.driver, 12080u);
    EXPECT_EQ(quench_rt_find_gpu(2, &gpu, &error_), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text, "there is no GPU 2, the driver has 2");
    Begin(device_line_query, "cuda:1");
    EXPECT_STREQ(quench_rt_device(session_), "cuda:1 Quench emulated device");
  });
}

// Programs of an earlier header have a shorter struct.
TEST_F(DeviceChoiceTest, NothingIsWrittenBehindTheCallersStruct) {
  quench_rt_gpu gpu{};
  gpu.size = offsetof(quench_rt_gpu, arch);
  ASSERT_EQ(quench_rt_find_gpu(0, &gpu, &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(gpu.size, offsetof(quench_rt_gpu, arch));
  EXPECT_STREQ(gpu.name, "Quench emulated device");
  EXPECT_STREQ(gpu.arch, "");
}

TEST_F(DeviceChoiceTest, WithoutADriverTheCpuRuns) {
  InProcess({{"QUENCH_CUDA_DRIVER", "/nonexistent"}}, [&] {
    Begin(device_line_query);
    EXPECT_STREQ(quench_rt_variant(model_)->name, "plain");
    EXPECT_STREQ(quench_rt_device(session_), "cpu");
    EXPECT_EQ(Start("cuda"), QUENCH_RT_DEVICE);
    const std::string why =
        "there is no CUDA driver: /nonexistent cannot be loaded (/nonexistent: cannot open shared "
        "object file: No such file or directory)";
    EXPECT_EQ(error_.text, why);
    EXPECT_EQ(Open(device_gpu_only_query), QUENCH_RT_DEVICE);
    EXPECT_EQ(error_.text, "`linked model` cannot run here: " + why);
  });
}

TEST_F(DeviceChoiceTest, WithoutAGpuTheCpuRuns) {
  InProcess({{"QUENCH_EMULATED_DEVICES", "0"}}, [&] {
    Begin(device_line_query);
    EXPECT_STREQ(quench_rt_device(session_), "cpu");
    EXPECT_EQ(Start("cuda"), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text, "there is no GPU 0, the driver has none");
    EXPECT_EQ(Open(device_gpu_only_query), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text,
                 "`linked model` cannot run here: there is no GPU 0, the driver has none");
  });
}

TEST_F(DeviceChoiceTest, ADriverMayLackFunctions) {
  InProcess({{"QUENCH_CUDA_DRIVER", "libm.so.6"}}, [&] {
    quench_rt_gpu gpu{};
    EXPECT_EQ(quench_rt_find_gpu(0, &gpu, &error_), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text, "the CUDA driver is too old: it lacks cuInit");
  });
}

TEST_F(DeviceChoiceTest, ADriverMayNotStart) {
  InProcess({{"QUENCH_EMULATED_DEVICES", "many"}}, [&] {
    quench_rt_gpu gpu{};
    EXPECT_EQ(quench_rt_find_gpu(0, &gpu, &error_), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text, "the CUDA driver does not start: invalid argument");
  });
}

// A driver that is asked for would fail here.
TEST_F(DeviceChoiceTest, NothingElseOpensTheDriver) {
  InProcess({{"QUENCH_CUDA_DRIVER", "/nonexistent"}}, [&] {
    Begin(fake_model_query);
    ASSERT_EQ(Start("cpu"), QUENCH_RT_OK) << error_.text;
    char names[1000];
    quench_rt_cpu_names(names, sizeof names);
    EXPECT_EQ(quench_rt_cpu_family(QUENCH_GPU_FAMILY_CUDA), 0u);
    setenv("QUENCH_CUDA_DRIVER", EMULATED_DRIVER, 1);
    quench_rt_gpu gpu{};
    EXPECT_EQ(quench_rt_find_gpu(0, &gpu, &error_), QUENCH_RT_OK) << error_.text;
  });
}

TEST_F(DeviceChoiceTest, StreamsAreForGpus) {
  ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Start("cpu", this), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "a stream is for sessions on a GPU, this one is on the CPU");
  EXPECT_EQ(Start("cuda", this), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text,
               "the stream is not one of the primary context of GPU 0 (Quench emulated device)");
}

}  // namespace
}  // namespace quench::device_test
