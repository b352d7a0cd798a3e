// Calls of the driver that fail: sentences, what is left behind, and whether sessions go on.
#include <dlfcn.h>

#include "tests/unit/common/runtime/device_model.h"
#include "tests/unit/common/runtime/device_support.h"
#include "tests/unit/common/runtime/failing_driver.h"

namespace quench::device_test {
namespace {

template <typename Function>
Function* Failing(const char* name) {
  static void* const library = dlopen(FAILING_DRIVER, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void Arm(const char* name, int call, CUresult result) {
  Failing<decltype(failing_driver_arm)>("failing_driver_arm")(name, call, result);
}
void Disarm() { Arm(nullptr, -1, CUDA_SUCCESS); }
bool Fired() { return Failing<decltype(failing_driver_fired)>("failing_driver_fired")() != 0; }

int Objects() { return Failing<decltype(failing_driver_objects)>("failing_driver_objects")(); }

class DeviceFailureTest : public DeviceTest {
 protected:
  void WithFailingDriver(const std::function<void()>& body) {
    InProcess({{"QUENCH_CUDA_DRIVER", FAILING_DRIVER}}, [&] {
      body();
      Disarm();
      Free();
      EXPECT_EQ(Objects(), 0);
      EXPECT_EQ(Report(), "");
    });
  }

  // The creation of a session where this call fails.
  void ExpectStart(const char* name, CUresult result, int code, const std::string& text) {
    ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
    Arm(name, 1, result);
    EXPECT_EQ(Start("cuda"), code);
    EXPECT_EQ(error_.text, text);
    Disarm();
  }

  bool Bind() { return Set(0, x_) == QUENCH_RT_OK && Set(1, x_) == QUENCH_RT_OK; }
  // All that sessions do; false once something has failed, of which there is a sentence.
  bool DoAll() {
    std::vector<double> seconds(3);
    const auto succeeds = [&](int code) { return code == QUENCH_RT_OK; };
    if (!succeeds(Open(device_line_query)) || !succeeds(Start("cuda")) || !Bind()) return false;
    for (int run = 0; run < 4; ++run) {
      if (!succeeds(Run())) return false;
      EXPECT_EQ(Output(0), LineOf(x_));
    }
    device_line_does = DEVICE_LINE_TRANSFERS;
    if (!succeeds(quench_rt_profile(session_, seconds.data(), &error_))) return false;
    EXPECT_EQ(Output(0), LineOf(x_));
    return true;
  }

  const Floats x_ = {1, 2, 3};
};

TEST_F(DeviceFailureTest, SentencesSayWhatTheDriverSaid) {
  WithFailingDriver([&] {
    const std::string gpu = "GPU 0 (Quench emulated device) ";
    ExpectStart("cuModuleLoadDataEx", CUDA_ERROR_UNSUPPORTED_PTX_VERSION, QUENCH_RT_DEVICE,
                "the driver (CUDA 12.4) is too old for this library's code: the provided PTX was "
                "compiled with an unsupported toolchain.");
    ExpectStart("cuModuleLoadDataEx", CUDA_ERROR_INVALID_PTX, QUENCH_RT_DEVICE,
                gpu + "does not take the model's code: a PTX JIT compilation failed");
    ExpectStart("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND, QUENCH_RT_DEVICE,
                gpu +
                    "does not take kernel `scale` (32 threads, 0 bytes of shared memory): named "
                    "symbol not found");
    ExpectStart("cuFuncSetAttribute", CUDA_ERROR_INVALID_VALUE, QUENCH_RT_DEVICE,
                gpu +
                    "does not take kernel `add` (32 threads, 65536 bytes of shared memory): "
                    "invalid argument");
    ExpectStart("cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, QUENCH_RT_MEMORY,
                gpu + "has no memory for a context");
    ExpectStart("cuCtxPushCurrent_v2", CUDA_ERROR_UNKNOWN, QUENCH_RT_DEVICE,
                gpu + "cannot be used: unknown error");
  });
}

TEST_F(DeviceFailureTest, RunsGoOnWithoutGraphs) {
  WithFailingDriver([&] {
    for (const char* name :
         {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
      Begin(device_line_query);
      device_line_runs = 0;
      ASSERT_TRUE(Bind());
      Arm(name, 1, CUDA_ERROR_UNKNOWN);
      for (int run = 0; run < 4; ++run) {
        ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
        EXPECT_EQ(Output(0), LineOf(x_));
      }
      EXPECT_TRUE(Fired()) << name;
      EXPECT_GE(device_line_runs, 4);
    }
  });
}

TEST_F(DeviceFailureTest, NothingIsLeftBehindWhateverFails) {
  WithFailingDriver([&] {
    for (const CUresult result : {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY}) {
      int at = 0;
      for (bool fired = true; fired;) {
        device_line_does = DEVICE_LINE_NOTHING;
        error_.text[0] = '\0';
        Arm(nullptr, ++at, result);
        const bool all = DoAll();
        fired = Fired();
        Disarm();
        EXPECT_TRUE(all || (fired && error_.text[0] != '\0')) << at << error_.text;
        if (session_ != nullptr && Bind()) {
          EXPECT_EQ(Run(), QUENCH_RT_OK) << at << ": " << error_.text;
          EXPECT_EQ(Output(0), LineOf(x_));
        }
        Free();
        EXPECT_EQ(Objects(), 0) << at;
      }
      EXPECT_GT(at, 100);  // as many places are there
    }
  });
}

}  // namespace
}  // namespace quench::device_test
