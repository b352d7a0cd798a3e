// Sessions on the emulated device, and memory of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/runtime/device/driver.h"
#include "common/runtime/quench_rt.h"

namespace quench::device_test {

using Floats = std::vector<float>;

// The emulated driver's own count.
uint64_t LiveBytes();
uint64_t Launches();
// The error that it found in a kernel, or "".
std::string Report();

// Does `body` in a process of its own, which has these variables: the driver is opened once.
void InProcess(const std::map<std::string, std::string>& variables,
               const std::function<void()>& body);

// The primary context of a GPU, current until it is gone.
class Context {
 public:
  explicit Context(int gpu = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  const quench_cuda& cuda() const { return driver_->cuda; }

 private:
  const quench_driver* driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// Floats in memory of the current context.
class DeviceFloats {
 public:
  DeviceFloats(const Context& context, const Floats& values);
  DeviceFloats(const Context& context, size_t count);
  ~DeviceFloats();
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }
  Floats Read() const;

 private:
  const quench_cuda& cuda_;
  CUdeviceptr address_ = 0;
  size_t count_;
};

class DeviceTest : public ::testing::Test {
 protected:
  // Begins with the emulated driver.
  DeviceTest();
  ~DeviceTest() override;

  int Open(quench_model_query_fn query);
  // A session of the model that is open, on a device (NULL: the default).
  int Start(const char* device = nullptr, void* stream = nullptr);
  void Begin(quench_model_query_fn query, const char* device = nullptr) {
    ASSERT_EQ(Open(query), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Start(device), QUENCH_RT_OK) << error_.text;
  }
  int Set(uint32_t input, const Floats& values);
  int SetDevice(uint32_t input, const void* data, size_t count);
  int Run() { return quench_rt_run(session_, &error_); }
  Floats Output(uint32_t index);
  void Free();

  quench_rt_model* model_ = nullptr;
  quench_rt_session* session_ = nullptr;
  quench_rt_error error_{};
};

Floats Counted(size_t n, float first = 1);
// The output y of `line`.
Floats LineOf(const Floats& x);
Floats Sum(const Floats& a, const Floats& b);

}  // namespace quench::device_test
