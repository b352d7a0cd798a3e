// The emulated device as tests use it: its library, one context, and kernels given as functions.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/runtime/device/cuda_api.h"
#include "common/runtime/device/emulated.h"

namespace quench {

constexpr uint32_t kUnwritten = 0xA5A5A5A5;  // in memory that nothing was written to

inline uint32_t* Shared(quench_emulated_thread* thread) {
  return static_cast<uint32_t*>(thread->shared);
}

// Accesses as generated code has them.
template <typename T>
T Load(quench_emulated_thread* thread, const T* from) {
  thread->ops->access(thread, from, sizeof(T), 0);
  return *from;
}
template <typename T>
void Store(quench_emulated_thread* thread, T* to, T value) {
  thread->ops->access(thread, to, sizeof(T), 1);
  *to = value;
}
template <typename T>
T Argument(void* const* arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

class EmulatedDevice : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(EMULATED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
#define QUENCH_TEST_LOAD(name, exported, arguments) \
  ASSERT_TRUE(Find(#exported, &cuda.name)) << "no " #exported;
    QUENCH_CUDA_FUNCTIONS(QUENCH_TEST_LOAD)
#undef QUENCH_TEST_LOAD
    ASSERT_TRUE(Find("quench_emulated_report", &report_));
    ASSERT_TRUE(Find("quench_emulated_live_bytes", &live_bytes));
    ASSERT_TRUE(Find("quench_emulated_launches", &launches));
    Begin();
  }
  void TearDown() override {
    End();
    for (const std::string& name : set_) unsetenv(name.c_str());
    dlclose(library_);
  }

  // A context, with the variables of now.
  void Begin() {
    ASSERT_EQ(cuda.Init(0), CUDA_SUCCESS) << report();
    ASSERT_EQ(cuda.PrimaryRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuda.PushCurrent(context), CUDA_SUCCESS);
  }
  void End() {
    if (context == nullptr) return;
    EXPECT_EQ(cuda.PopCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuda.PrimaryRelease(0), CUDA_SUCCESS);
    context = nullptr;
  }
  // Until the end of the test, in a new context.
  void BeginWith(const std::string& variable, const std::string& value) {
    End();
    setenv(variable.c_str(), value.c_str(), 1);
    set_.push_back(variable);
    Begin();
  }

  template <typename Function>
  bool Find(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    return *function != nullptr;
  }
  std::string report() const { return report_(); }

  template <typename T>
  T* Allocate(size_t count) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuda.MemAlloc(&address, count * sizeof(T)), CUDA_SUCCESS);
    return reinterpret_cast<T*>(address);
  }
  static CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* const to = Allocate<T>(values.size());
    const size_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(cuda.CopyToDevice(Address(to), values.data(), bytes, nullptr), CUDA_SUCCESS);
    return to;
  }
  template <typename T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cuda.CopyToHost(values.data(), Address(from), count * sizeof(T), nullptr),
              CUDA_SUCCESS);
    return values;
  }

  struct Shape {
    uint32_t blocks = 1, threads = 1, shared_bytes = 0;
    bool cooperates = true;
  };
  // Runs a kernel `test` to its end; returns its result.
  template <typename... Arguments>
  CUresult Run(const Shape& shape, quench_emulated_kernel kernel, Arguments... values) {
    constexpr size_t kCount = sizeof...(Arguments);
    const std::array<uint64_t, kCount> sizes = {sizeof(Arguments)...};
    const quench_emulated_entry entry = {"test", kernel, sizes.data(), kCount,
                                         shape.cooperates ? 1u : 0u};
    const quench_emulated_image image = {QUENCH_EMULATED_MAGIC, 1, &entry};
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    std::array<void*, kCount> arguments = {&values...};
    CUresult result = cuda.ModuleLoad(&module, &image, 0, nullptr, nullptr);
    if (result == CUDA_SUCCESS) result = cuda.ModuleGetFunction(&function, module, "test");
    if (result == CUDA_SUCCESS) {
      result = cuda.Launch(function, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes,
                           nullptr, arguments.data(), nullptr);
    }
    if (result == CUDA_SUCCESS) result = cuda.StreamSynchronize(nullptr);
    cuda.ModuleUnload(module);
    return result;
  }

  quench_cuda cuda = {};
  CUcontext context = nullptr;
  uint64_t (*live_bytes)() = nullptr;
  uint64_t (*launches)() = nullptr;

 private:
  void* library_ = nullptr;
  const char* (*report_)() = nullptr;
  std::vector<std::string> set_;
};

}  // namespace quench
