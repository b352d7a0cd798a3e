#include "tests/unit/common/runtime/device_support.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "tests/unit/common/runtime/device_model.h"

namespace quench::device_test {
namespace {

template <typename Function>
Function* Emulated(const char* name) {
  static void* const library = dlopen(EMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// To where the other process looks; whether there are any.
bool PrintFailures() {
  const auto& result = *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const auto& part = result.GetTestPartResult(i);
    if (part.failed()) std::fprintf(stderr, "line %d: %s\n", part.line_number(), part.message());
  }
  return result.Failed();
}

}  // namespace

uint64_t LiveBytes() { return Emulated<uint64_t()>("quench_emulated_live_bytes")(); }
uint64_t Launches() { return Emulated<uint64_t()>("quench_emulated_launches")(); }
std::string Report() { return Emulated<const char*()>("quench_emulated_report")(); }

void InProcess(const std::map<std::string, std::string>& variables,
               const std::function<void()>& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
        body();
        std::exit(PrintFailures() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

Context::Context(int gpu) : driver_(quench_driver_open(nullptr)) {
  EXPECT_EQ(cuda().DeviceGet(&device_, gpu), CUDA_SUCCESS);
  EXPECT_EQ(cuda().PrimaryRetain(&context_, device_), CUDA_SUCCESS);
  EXPECT_EQ(cuda().PushCurrent(context_), CUDA_SUCCESS);
}

Context::~Context() {
  cuda().PopCurrent(&context_);
  cuda().PrimaryRelease(device_);
}

DeviceFloats::DeviceFloats(const Context& context, size_t count)
    : cuda_(context.cuda()), count_(count) {
  EXPECT_EQ(cuda_.MemAlloc(&address_, count * sizeof(float)), CUDA_SUCCESS);
}

DeviceFloats::DeviceFloats(const Context& context, const Floats& values)
    : DeviceFloats(context, values.size()) {
  EXPECT_EQ(cuda_.CopyToDevice(address_, values.data(), count_ * sizeof(float), nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuda_.StreamSynchronize(nullptr), CUDA_SUCCESS);
}

DeviceFloats::~DeviceFloats() { cuda_.MemFree(address_); }

Floats DeviceFloats::Read() const {
  Floats values(count_);
  EXPECT_EQ(cuda_.CopyToHost(values.data(), address_, count_ * sizeof(float), nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuda_.StreamSynchronize(nullptr), CUDA_SUCCESS);
  return values;
}

DeviceTest::DeviceTest() {
  setenv("QUENCH_CUDA_DRIVER", EMULATED_DRIVER, 0);
  device_line_does = DEVICE_LINE_NOTHING;
}

DeviceTest::~DeviceTest() { Free(); }

void DeviceTest::Free() {
  quench_rt_session_free(session_);
  session_ = nullptr;
  quench_rt_close(model_);
  model_ = nullptr;
}

int DeviceTest::Open(quench_model_query_fn query) {
  Free();
  return quench_rt_open_linked(query, &model_, &error_);
}

int DeviceTest::Start(const char* device, void* stream) {
  quench_rt_session_free(session_);
  quench_rt_options options{};
  options.size = sizeof options;
  options.device = device;
  options.stream = stream;
  return quench_rt_session_create(model_, &options, &session_, &error_);
}

int DeviceTest::Set(uint32_t input, const Floats& values) {
  const auto count = static_cast<int64_t>(values.size());
  const quench_rt_tensor tensor = {const_cast<float*>(values.data()), &count, 1, 1};
  return quench_rt_set_input(session_, input, &tensor, &error_);
}

int DeviceTest::SetDevice(uint32_t input, const void* data, size_t count) {
  const auto dim = static_cast<int64_t>(count);
  const quench_rt_tensor tensor = {const_cast<void*>(data), &dim, 1, 1};
  return quench_rt_set_device_input(session_, input, &tensor, &error_);
}

Floats DeviceTest::Output(uint32_t index) {
  quench_rt_tensor tensor{};
  EXPECT_EQ(quench_rt_get_output(session_, index, &tensor, &error_), QUENCH_RT_OK) << error_.text;
  const auto* const data = static_cast<const float*>(tensor.data);
  return {data, data + tensor.dims[0]};
}

Floats Counted(size_t n, float first) {
  Floats values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

Floats LineOf(const Floats& x) {
  Floats y;
  for (const float each : x) y.push_back(2 * each + 1);
  return y;
}

Floats Sum(const Floats& a, const Floats& b) {
  Floats sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  return sum;
}

}  // namespace quench::device_test
