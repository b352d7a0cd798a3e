// The emulated driver's calls: devices, memory, handles, captures, events.
#include <cstring>
#include <thread>

#include "tests/unit/common/runtime/emulated_harness.h"

namespace quench::emulated_driver_test {
namespace {

using Thread = quench_emulated_thread;

// to[i] = from[i] + term.
void Add(Thread* thread, void* const* arguments) {
  auto* const to = Argument<uint32_t*>(arguments, 0);
  const auto* const from = Argument<const uint32_t*>(arguments, 1);
  const auto term = Argument<uint32_t>(arguments, 2);
  Store(thread, to + thread->thread, Load(thread, from + thread->thread) + term);
}

constexpr uint64_t kAddArguments[] = {8, 8, 4};
constexpr quench_emulated_entry kEntries[] = {{"add", Add, kAddArguments, 3, 0}};
constexpr quench_emulated_image kImage = {QUENCH_EMULATED_MAGIC, 1, kEntries};

class EmulatedDriver : public EmulatedDevice {
 protected:
  void SetUp() override {
    EmulatedDevice::SetUp();
    ASSERT_EQ(cuda.ModuleLoad(&module, &kImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuda.ModuleGetFunction(&add, module, "add"), CUDA_SUCCESS);
    ASSERT_EQ(cuda.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  CUresult Launch(uint32_t threads, uint32_t shared_bytes, void** arguments) {
    return cuda.Launch(add, 1, 1, 1, threads, 1, 1, shared_bytes, stream, arguments, nullptr);
  }

  CUmodule module = nullptr;
  CUfunction add = nullptr;
  CUstream stream = nullptr;
};

TEST_F(EmulatedDriver, SaysWhatItIs) {
  int (*emulated)() = nullptr;
  ASSERT_TRUE(Find("quench_emulated_cuda", &emulated));
  EXPECT_EQ(emulated(), 1);
  int count = 0, version = 0, major = 0, minor = -1;
  EXPECT_EQ(cuda.DeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cuda.DriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 12040);
  char name[64];
  EXPECT_EQ(cuda.DeviceGetName(name, sizeof(name), 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "Quench emulated device");
  EXPECT_EQ(cuda.DeviceGetName(name, 7, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "Quench");
  EXPECT_EQ(cuda.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), 0);
  EXPECT_EQ(cuda.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0), 0);
  EXPECT_EQ(major * 10 + minor, 90);
  EXPECT_EQ(cuda.DeviceGetAttribute(&major, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.DeviceGetAttribute(&major, 1, 1), CUDA_ERROR_INVALID_DEVICE);
  const char* text = nullptr;
  EXPECT_EQ(cuda.GetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cuda.GetErrorString(12345, &text), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDriver, VariablesAreReadWhileNoContextIsRetained) {
  BeginWith("QUENCH_EMULATED_DEVICES", "2");
  BeginWith("QUENCH_EMULATED_DRIVER", "11080");
  setenv("QUENCH_EMULATED_DEVICES", "3", 1);
  ASSERT_EQ(cuda.Init(0), CUDA_SUCCESS);
  int count = 0, version = 0;
  EXPECT_EQ(cuda.DeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cuda.DriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 11080);
  CUcontext second = nullptr;
  EXPECT_EQ(cuda.PrimaryRetain(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(second, context);
  EXPECT_EQ(cuda.PrimaryRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(cuda.PrimaryRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda.PushCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
  End();
  setenv("QUENCH_EMULATED_DEVICES", "0", 1);
  EXPECT_EQ(cuda.Init(0), CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cuda.DeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  setenv("QUENCH_EMULATED_DEVICES", "many", 1);
  EXPECT_EQ(cuda.Init(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(report(), "QUENCH_EMULATED_DEVICES is `many`: it takes a number from 0 to 8");
}

TEST_F(EmulatedDriver, MemoryOfAnotherDeviceIsOutside) {
  BeginWith("QUENCH_EMULATED_DEVICES", "2");
  CUcontext second = nullptr;
  ASSERT_EQ(cuda.PrimaryRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuda.PushCurrent(second), CUDA_SUCCESS);
  auto* const other = Upload<uint32_t>({1});
  EXPECT_EQ(Run({1, 1, 0, false}, Add, other, other, 1u), CUDA_SUCCESS) << report();
  ASSERT_EQ(cuda.PopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Run({1, 1, 0, false}, Add, other, other, 1u), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(), "kernel `test`, block 0, thread 0: reads 4 bytes in memory of device 1");
  EXPECT_EQ(cuda.PrimaryRelease(1), CUDA_SUCCESS);
}

TEST_F(EmulatedDriver, MemoryHasALimit) {
  BeginWith("QUENCH_EMULATED_MEMORY", "10000");
  CUdeviceptr first = 0, second = 0;
  size_t available = 0, total = 0;
  EXPECT_EQ(cuda.MemAlloc(&first, 6000), CUDA_SUCCESS);
  EXPECT_EQ(first % 256, 0u);
  EXPECT_EQ(cuda.MemAlloc(&second, 4001), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda.MemAlloc(&second, 4000), CUDA_SUCCESS);
  EXPECT_EQ(cuda.MemGetInfo(&available, &total), CUDA_SUCCESS);
  EXPECT_EQ(available, 0u);
  EXPECT_EQ(total, 10000u);
  EXPECT_EQ(cuda.MemFree(first + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.MemFree(first), CUDA_SUCCESS);
  EXPECT_EQ(cuda.MemFree(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.MemFree(0), CUDA_SUCCESS);
  EXPECT_EQ(live_bytes(), 4000u);
  EXPECT_EQ(cuda.MemAlloc(&first, 0), CUDA_ERROR_INVALID_VALUE);
  End();
  EXPECT_EQ(live_bytes(), 0u);
  EXPECT_EQ(report(), "a context was released with 4000 bytes allocated");
}

TEST_F(EmulatedDriver, CopiesStayWithinAllocations) {
  const std::vector<uint32_t> values = {1, 2, 3, 4};
  const CUdeviceptr from = Address(Upload(values));
  auto* const to = Allocate<uint32_t>(6);
  EXPECT_EQ(cuda.SetWords(Address(to), 9, 6, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.CopyWithin(Address(to + 1), from, 16, stream), CUDA_SUCCESS);
  EXPECT_EQ(Download(to, 6), (std::vector<uint32_t>{9, 1, 2, 3, 4, 9}));
  uint32_t host[8];
  EXPECT_EQ(cuda.CopyToHost(host, from, 20, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.CopyToDevice(from + 4, host, 16, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.CopyToDevice(Address(host), host, 16, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.CopyWithin(Address(to), Address(to + 1), 8, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.SetWords(from, 0, 5, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.SetWords(from + 2, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDriver, PointersAreKnown) {
  const CUdeviceptr address = Address(Allocate<char>(100));
  unsigned type = 0;
  CUcontext owner = nullptr;
  EXPECT_EQ(cuda.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 99), 0);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(cuda.PointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address), 0);
  EXPECT_EQ(owner, context);
  EXPECT_EQ(cuda.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(&type)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(EmulatedDriver, LaunchesAreChecked) {
  auto* data = Upload<uint32_t>({1});
  uint32_t term = 1;
  void* arguments[] = {&data, &data, &term};
  EXPECT_EQ(Launch(1, 48 << 10, arguments), CUDA_SUCCESS);
  EXPECT_EQ(Launch(1, (48 << 10) + 1, arguments), CUDA_ERROR_INVALID_VALUE);
  constexpr int kMostShared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  EXPECT_EQ(cuda.FuncSetAttribute(add, kMostShared, 227 << 10), CUDA_SUCCESS);
  EXPECT_EQ(cuda.FuncSetAttribute(add, kMostShared, (227 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(1, 227 << 10, arguments), CUDA_SUCCESS);
  EXPECT_EQ(Launch(1025, 0, arguments), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(0, 0, arguments), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.Launch(add, 0, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda.Launch(add, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Download(data, 1)[0], 3u);
}

TEST_F(EmulatedDriver, HandlesAreChecked) {
  auto* data = Upload<uint32_t>({1});
  uint32_t term = 1;
  void* arguments[] = {&data, &data, &term};
  CUfunction missing = nullptr;
  EXPECT_EQ(cuda.ModuleGetFunction(&missing, module, "subtract"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuda.ModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuda.ModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.ModuleGetFunction(&missing, module, "add"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(1, 0, arguments), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.StreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.StreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.StreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.EventDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuda.GraphDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address;
  std::thread([&] {  // where no context is current
    EXPECT_EQ(cuda.MemAlloc(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuda.PopCurrent(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  })
      .join();
}

TEST_F(EmulatedDriver, ImagesAreChecked) {
  char log[64] = "";
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule loaded = nullptr;
  EXPECT_EQ(cuda.ModuleLoad(&loaded, ".version 8.0", 2, options, values), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_STREQ(log, "not an image of the emulated device");
  const quench_emulated_entry nameless = {nullptr, Add, kAddArguments, 3, 0};
  const quench_emulated_image image = {QUENCH_EMULATED_MAGIC, 1, &nameless};
  EXPECT_EQ(cuda.ModuleLoad(&loaded, &image, 0, nullptr, nullptr), CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(EmulatedDriver, GraphsDoAgainWhatWasCaptured) {
  auto* data = Upload<uint32_t>({1, 2});
  auto* sums = Allocate<uint32_t>(2);
  std::vector<uint32_t> host = {10, 20}, back(2);
  uint32_t term = 5;
  void* arguments[] = {&sums, &data, &term};
  const uint64_t before = launches();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(cuda.EventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(cuda.CopyToDevice(Address(data), host.data(), 8, stream), CUDA_SUCCESS);
  EXPECT_EQ(Launch(2, 0, arguments), CUDA_SUCCESS);
  EXPECT_EQ(cuda.EventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.CopyToHost(back.data(), Address(sums), 8, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.StreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(launches(), before);
  EXPECT_EQ(Download(data, 2), (std::vector<uint32_t>{1, 2}));
  ASSERT_EQ(cuda.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuda.GraphDestroy(graph), CUDA_SUCCESS);
  term = 1000;  // not what was captured
  for (uint32_t run = 0; run < 3; ++run) {
    host[0] = 10 + run;
    EXPECT_EQ(cuda.GraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda.StreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(back, (std::vector<uint32_t>{15 + run, 25}));
  }
  EXPECT_EQ(launches() - before, 3u);
  ASSERT_EQ(cuda.ModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuda.GraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(), "kernel `add`: its module is unloaded");
  EXPECT_EQ(cuda.GraphExecDestroy(exec), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(EmulatedDriver, GraphsUseMemoryThatIsThere) {
  const CUdeviceptr data = Address(Upload<uint32_t>({1}));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(cuda.SetWords(data, 1, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuda.StreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuda.GraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuda.MemFree(data), CUDA_SUCCESS);
  EXPECT_EQ(cuda.GraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.StreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(report(), "memset of a graph: memory that is in no allocation");
}

TEST_F(EmulatedDriver, CapturesRefuseWhatCannotBeRecorded) {
  constexpr CUresult kInvalidated = 901, kIllegalState = 401;
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda.StreamEndCapture(stream, &graph), kIllegalState);
  EXPECT_EQ(cuda.StreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUdeviceptr address = 0;
  const auto synchronize = [&] { return cuda.StreamSynchronize(stream); };
  const auto allocate = [&] { return cuda.MemAlloc(&address, 4); };
  for (const bool allocates : {false, true}) {
    ASSERT_EQ(cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    EXPECT_EQ(cuda.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), kIllegalState);
    EXPECT_EQ(allocates ? allocate() : synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cuda.StreamEndCapture(stream, &graph), kInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(EmulatedDriver, EventsTellTheTime) {
  CUevent first = nullptr, last = nullptr;
  ASSERT_EQ(cuda.EventCreate(&first, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuda.EventCreate(&last, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  EXPECT_EQ(cuda.EventRecord(first, stream), CUDA_SUCCESS);
  float milliseconds = -1;
  EXPECT_EQ(cuda.EventElapsedTime(&milliseconds, first, last), CUDA_ERROR_INVALID_HANDLE);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(cuda.EventRecord(last, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuda.EventSynchronize(last), CUDA_SUCCESS);
  EXPECT_EQ(cuda.EventElapsedTime(&milliseconds, first, last), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 2.0f);
  EXPECT_EQ(cuda.EventDestroy(first), CUDA_SUCCESS);
  EXPECT_EQ(cuda.EventElapsedTime(&milliseconds, first, last), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace quench::emulated_driver_test
