// Runs on the emulated device: inputs and outputs on either side, failures, streams, profiles.
#include <atomic>
#include <thread>

#include "common/runtime/quench.hpp"
#include "common/runtime/rt_internal.h"
#include "tests/unit/common/runtime/device_model.h"
#include "tests/unit/common/runtime/device_support.h"

namespace quench::device_test {
namespace {

TEST_F(DeviceTest, RunsAtEverySizeFromMemoryOfTheHost) {
  Begin(device_line_query);
  for (const size_t n : {3, 1000, 32, 33, 3, 1000}) {
    const Floats x = Counted(n, 0), cache = Counted(n, 7);
    const Floats small(n, 0.5f);
    ASSERT_EQ(Set(0, small), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Set(1, cache), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), LineOf(small));
    EXPECT_EQ(Output(1), Sum(small, cache));
  }
  EXPECT_EQ(Report(), "");
}

TEST_F(DeviceTest, MemoryOfBothSidesMeets) {
  Begin(device_mixed_query);
  const Context context;
  const Floats x = {1, 2, 3, 4, 5}, k = {-1, -100, 0, -100, 1};
  const Floats y = LineOf(x), z = Sum(y, k);
  const DeviceFloats device_x(context, x), device_k(context, k);
  DeviceFloats device_y(context, 5), device_z(context, 5), device_copy(context, 5);
  for (int places = 0; places < 4; ++places) {
    ASSERT_EQ(places & 1 ? SetDevice(0, device_x.data(), 5) : Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(places & 1 ? SetDevice(1, device_k.data(), 5) : Set(1, k), QUENCH_RT_OK);
    DeviceFloats* const outputs[] = {&device_y, &device_z, &device_copy};
    for (uint32_t i = 0; i < 3; ++i) {
      void* const data = places & 2 ? outputs[i]->data() : nullptr;
      ASSERT_EQ(quench_rt_set_device_output(session_, i, data, 20, &error_), QUENCH_RT_OK);
    }
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    const Floats* const expected[] = {&y, &z, &z};
    for (uint32_t i = 0; i < 3; ++i) {
      quench_rt_tensor tensor{};
      ASSERT_EQ(quench_rt_get_output(session_, i, &tensor, &error_), QUENCH_RT_OK);
      if (places & 2) {
        EXPECT_EQ(tensor.data, outputs[i]->data());
        EXPECT_EQ(outputs[i]->Read(), *expected[i]) << places << i;
      } else {
        EXPECT_EQ(Output(i), *expected[i]) << places << i;
      }
    }
    EXPECT_EQ(Output(3), (Floats{2, 7, 12}));
  }
  EXPECT_EQ(Report(), "");
}

TEST_F(DeviceTest, SizesThatOnlyARunKnowsCannotBeBound) {
  Begin(device_mixed_query);
  const Context context;
  const DeviceFloats memory(context, 8);
  const Floats x = {1, 2};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_set_device_output(session_, 3, memory.data(), 32, &error_), QUENCH_RT_OK);
  EXPECT_EQ(Run(), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text,
               "output `positive`: its size is known only after the run, its memory cannot be "
               "bound");
  ASSERT_EQ(quench_rt_set_device_output(session_, 3, nullptr, 0, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(3), (Floats{4, 7}));
}

TEST_F(DeviceTest, OutputsGoIntoMemoryOfTheCallers) {
  Begin(device_mixed_query);
  const Floats x = {1, 2}, k = {3, 4};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, k), QUENCH_RT_OK);
  Floats y(2), z(2), copy(2);
  uint32_t index = 0;
  for (Floats* each : {&y, &z, &copy})
    ASSERT_EQ(quench_rt_set_output(session_, index++, each->data(), 8, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(y, LineOf(x));
  EXPECT_EQ(z, Sum(y, k));
  EXPECT_EQ(copy, z);
  quench_rt_tensor tensor{};
  ASSERT_EQ(quench_rt_get_output(session_, 2, &tensor, &error_), QUENCH_RT_OK);
  EXPECT_EQ(tensor.data, copy.data());
}

TEST_F(DeviceTest, AnOutputTakesThePlaceOfAnInput) {
  Begin(device_line_query);
  const Context context;
  const Floats x = {1, 2, 3};
  const DeviceFloats cache(context, {10, 20, 30, 40, 50, 60, 70, 80});
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(SetDevice(1, cache.data(), 3), QUENCH_RT_OK) << error_.text;
  ASSERT_EQ(quench_rt_set_device_output(session_, 1, cache.data(), 12, &error_), QUENCH_RT_OK);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(cache.Read(), (Floats{12, 24, 36, 40, 50, 60, 70, 80}));
  // Others may not, nor from another address on.
  ASSERT_EQ(quench_rt_set_device_output(session_, 0, cache.data(), 12, &error_), QUENCH_RT_OK);
  EXPECT_EQ(Run(), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text,
               "output `y` is bound to memory of input `cache`: the model does not write it in "
               "place");
  const DeviceFloats other(context, 8);
  ASSERT_EQ(quench_rt_set_device_output(session_, 0, other.data(), 12, &error_), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_set_device_output(session_, 1, other.data(), 12, &error_), QUENCH_RT_OK);
  EXPECT_EQ(Run(), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "outputs `y` and `next` are bound to the same memory");
}

TEST_F(DeviceTest, AddressesAreChecked) {
  InProcess({{"QUENCH_EMULATED_DEVICES", "2"}}, [&] {
    Begin(device_line_query);
    const Floats x = {1, 2, 3, 4};
    const Context other(1);
    const DeviceFloats elsewhere(other, x);
    const Context context;
    const DeviceFloats here(context, x);
    const std::string gpu = "GPU 0 (Quench emulated device)";
    EXPECT_EQ(SetDevice(0, x.data(), 4), QUENCH_RT_INVALID);
    EXPECT_EQ(error_.text, "input `x`: data is not memory of " + gpu);
    EXPECT_EQ(SetDevice(0, elsewhere.data(), 4), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text,
                 "input `x`: data is memory of another GPU than 0 (Quench emulated device)");
    EXPECT_EQ(SetDevice(0, static_cast<char*>(here.data()) + 4, 2), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text, "input `x`: data is not aligned to 16 bytes");
    EXPECT_EQ(SetDevice(0, nullptr, 4), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text, "input `x`: data is NULL");
    Floats y(4);
    EXPECT_EQ(quench_rt_set_device_output(session_, 0, y.data(), 16, &error_), QUENCH_RT_INVALID);
    EXPECT_EQ(error_.text, "output `y`: data is not memory of " + gpu);
    ASSERT_EQ(quench_rt_set_device_output(session_, 0, here.data(), 12, &error_), QUENCH_RT_OK);
    ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
    EXPECT_EQ(Run(), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text, "output `y`: 12 bytes are bound, this run writes 16");
    ASSERT_EQ(Start("cpu"), QUENCH_RT_OK);
    EXPECT_EQ(SetDevice(0, here.data(), 4), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text, "memory of a device is for sessions on one, this one is on the CPU");
  });
}

TEST_F(DeviceTest, ChecksOfTheDeviceFailTheRun) {
  Begin(device_mixed_query);
  Floats x = {1, 2, 3};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  x[2] = -1;
  EXPECT_EQ(Run(), QUENCH_RT_CHECK);
  EXPECT_STREQ(error_.text, "node `scale` (Mul): x is negative");
  x[1] = 200;  // the least of the checks is told
  EXPECT_EQ(Run(), QUENCH_RT_CHECK);
  EXPECT_STREQ(error_.text, "node `scale` (Mul): x is negative");
  x = {600, 0, 0};  // fails on the host too, which comes later
  EXPECT_EQ(Run(), QUENCH_RT_CHECK);
  EXPECT_STREQ(error_.text, "node `shift` (Add): x is too large");
  x = {1, 1, 1};
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(0), LineOf(x));
}

TEST_F(DeviceTest, RunsAreCancelled) {
  Begin(device_line_query);
  const Floats x = {1, 2, 3};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  device_line_does = DEVICE_LINE_WAITS;
  std::atomic<bool> over = false;
  std::thread canceller([&] {
    while (!over) {
      quench_rt_cancel(session_);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(Run(), QUENCH_RT_CANCELLED);
  over = true;
  canceller.join();
  device_line_does = DEVICE_LINE_NOTHING;
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(0), LineOf(x));
}

TEST_F(DeviceTest, AFailedLaunchNamesItsNode) {
  Begin(device_line_query);
  const Floats x = {1, 2, 3};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  device_line_does = DEVICE_LINE_MISUSES;
  EXPECT_EQ(Run(), QUENCH_RT_DEVICE);
  EXPECT_STREQ(error_.text, "node `shift` (Add): the GPU failed: invalid argument");
  device_line_does = DEVICE_LINE_NOTHING;
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(0), LineOf(x));
}

// A GPU is lost to a process once a kernel went wrong, until its context is gone.
TEST_F(DeviceTest, AFailedKernelEndsTheContext) {
  InProcess({}, [&] {
    Begin(device_line_query);
    const Floats x = {1, 2, 3};
    ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
    device_line_does = DEVICE_LINE_BREAKS;
    EXPECT_EQ(Run(), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text,
                 "node `last` (Add) or one before it: the GPU failed: an illegal memory access was "
                 "encountered");
    device_line_does = DEVICE_LINE_NOTHING;
    EXPECT_EQ(Run(), QUENCH_RT_DEVICE);
    EXPECT_STREQ(error_.text, "the GPU failed: an illegal memory access was encountered");
    Free();
    EXPECT_EQ(LiveBytes(), 0u);
    Begin(device_line_query);
    ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), LineOf(x));
  });
}

TEST_F(DeviceTest, WeightsMayNotFit) {
  InProcess({{"QUENCH_EMULATED_MEMORY", "200"}}, [&] {
    ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Start(), QUENCH_RT_MEMORY);
    EXPECT_STREQ(error_.text,
                 "GPU 0 (Quench emulated device) has 200 bytes free, the weights of `line` need "
                 "260 bytes");
    EXPECT_EQ(LiveBytes(), 0u);
    EXPECT_EQ(Report(), "");
  });
}

TEST_F(DeviceTest, MemoryOfARunMayNotFit) {
  InProcess({{"QUENCH_EMULATED_MEMORY", "4000"}}, [&] {
    Begin(device_line_query);
    const Floats large(1000, 2), x = {1, 2, 3};
    ASSERT_EQ(Set(0, large), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, large), QUENCH_RT_OK);
    EXPECT_EQ(Run(), QUENCH_RT_MEMORY);
    EXPECT_STREQ(error_.text,
                 "GPU 0 (Quench emulated device) has 3.7 KB free, this run needs 4.0 KB");
    const Floats middle(300, 2);
    ASSERT_EQ(Set(0, middle), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, middle), QUENCH_RT_OK);
    EXPECT_EQ(Run(), QUENCH_RT_MEMORY);
    EXPECT_STREQ(error_.text,
                 "GPU 0 (Quench emulated device) has 72 bytes free, an output needs 1.2 KB");
    ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), LineOf(x));
    Free();
    EXPECT_EQ(LiveBytes(), 0u);
    EXPECT_EQ(Report(), "");
  });
}

TEST_F(DeviceTest, SessionsShareWeights) {
  Begin(device_line_query);
  constexpr uint64_t kSession = 4, kWeights = 260;
  EXPECT_EQ(LiveBytes(), kWeights + kSession);
  quench_rt_session* other = nullptr;
  ASSERT_EQ(quench_rt_session_create(model_, nullptr, &other, &error_), QUENCH_RT_OK);
  EXPECT_EQ(LiveBytes(), kWeights + 2 * kSession);
  quench_rt_session_free(session_);
  session_ = other;
  EXPECT_EQ(LiveBytes(), kWeights + kSession);
  const Floats x = {4, 5};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(Output(0), LineOf(x));
  quench_rt_session_free(session_);
  session_ = nullptr;
  EXPECT_EQ(LiveBytes(), 0u);
  EXPECT_EQ(Report(), "");
}

TEST_F(DeviceTest, SessionsRunBesideOneAnother) {
  ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this, i, &good] {
      quench_rt_session* session = nullptr;
      quench_rt_error error;
      if (quench_rt_session_create(model_, nullptr, &session, &error) != QUENCH_RT_OK) return;
      const Floats x(100, static_cast<float>(i));
      const int64_t count = 100;
      const quench_rt_tensor tensor = {const_cast<float*>(x.data()), &count, 1, 1};
      quench_rt_tensor y{};
      bool same = true;
      for (int run = 0; run < 20; ++run) {
        same = same && quench_rt_set_input(session, 0, &tensor, &error) == QUENCH_RT_OK &&
               quench_rt_set_input(session, 1, &tensor, &error) == QUENCH_RT_OK &&
               quench_rt_run(session, &error) == QUENCH_RT_OK &&
               quench_rt_get_output(session, 0, &y, &error) == QUENCH_RT_OK &&
               static_cast<const float*>(y.data)[99] == LineOf(x)[99];
      }
      quench_rt_session_free(session);
      good += same ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 4);
  EXPECT_EQ(LiveBytes(), 0u);
}

TEST_F(DeviceTest, StatesGoFromRunToRun) {
  Begin(device_sum_query);
  const Floats x = {1, 2, 3, 4};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  for (float times = 1; times < 4; ++times) {
    ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(Output(0), (Floats{times, 2 * times, 3 * times, 4 * times}));
  }
  const Context context;
  const DeviceFloats next(context, 4), given(context, {10, 20, 30, 40});
  ASSERT_EQ(quench_rt_set_device_output(session_, 0, next.data(), 16, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(next.Read(), (Floats{4, 8, 12, 16}));
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(next.Read(), (Floats{5, 10, 15, 20}));
  ASSERT_EQ(SetDevice(1, given.data(), 4), QUENCH_RT_OK) << error_.text;
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(next.Read(), (Floats{11, 22, 33, 44}));
  ASSERT_EQ(quench_rt_set_device_input(session_, 1, nullptr, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(next.Read(), (Floats{12, 24, 36, 48}));
  quench_rt_reset_states(session_);
  ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(next.Read(), x);
}

TEST_F(DeviceTest, ProfilesTellTheTimeOfNodes) {
  Begin(device_line_query);
  const Floats x(1000, 2);
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  std::vector<double> seconds(3);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(quench_rt_profile(session_, seconds.data(), &error_), QUENCH_RT_OK) << error_.text;
  for (const double each : seconds) EXPECT_GT(each, 0);
  EXPECT_EQ(Output(0), LineOf(x));
}

struct Observed {
  const quench_rt_session* session;
  std::vector<int32_t> nodes;
  Floats x, arena, y;
};

void Observe(void* user, int32_t node, const quench_rt_memory* memory) {
  Observed& seen = *static_cast<Observed*>(user);
  seen.nodes.push_back(node);
  const auto read = [&](Floats* to, const void* from) {
    to->resize(3);
    EXPECT_EQ(quench_rt_read_device(seen.session, to->data(), from, 12), QUENCH_RT_OK);
  };
  if (node == 0) read(&seen.x, memory->device_inputs[0]);
  if (node == 1) read(&seen.arena, memory->device_arena);
  if (node == 2) read(&seen.y, memory->device_outputs[0]);
}

TEST_F(DeviceTest, ObserversReadTheDevice) {
  Begin(device_line_query);
  const Floats x = {1, 2, 3};
  ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
  ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
  Observed seen{session_, {}, {}, {}, {}};
  ASSERT_EQ(quench_rt_observe(session_, Observe, &seen, &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(seen.nodes, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(seen.x, x);
  EXPECT_EQ(seen.arena, (Floats{2, 4, 6}));
  EXPECT_EQ(seen.y, LineOf(x));
}

TEST_F(DeviceTest, RunsGoIntoTheCallersStream) {
  InProcess({{"QUENCH_EMULATED_DEVICES", "2"}}, [&] {
    ASSERT_EQ(Open(device_line_query), QUENCH_RT_OK) << error_.text;
    CUstream foreign = nullptr, stream = nullptr;
    const Context other(1);
    ASSERT_EQ(other.cuda().StreamCreate(&foreign, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const Context context;
    ASSERT_EQ(context.cuda().StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(Start("cuda:0", foreign), QUENCH_RT_INVALID);
    EXPECT_STREQ(error_.text,
                 "the stream is not one of the primary context of GPU 0 (Quench emulated device)");
    ASSERT_EQ(Start("cuda:0", nullptr), QUENCH_RT_OK) << error_.text;
    EXPECT_NE(quench_rt_stream(session_), nullptr);  // its own
    ASSERT_EQ(Start("cuda:0", stream), QUENCH_RT_OK) << error_.text;
    EXPECT_EQ(quench_rt_stream(session_), stream);
    const Floats x = {1, 2, 3};
    ASSERT_EQ(Set(0, x), QUENCH_RT_OK);
    ASSERT_EQ(Set(1, x), QUENCH_RT_OK);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(Run(), QUENCH_RT_OK) << error_.text;
      EXPECT_EQ(Output(0), LineOf(x));
    }
    Free();
    EXPECT_EQ(context.cuda().StreamSynchronize(stream), CUDA_SUCCESS);  // it is the caller's
  });
}

TEST_F(DeviceTest, TheCppHeaderKnowsDevices) {
  const auto model = Model::OpenLinked(device_line_query);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->NewSession({.device = "gpu"}).error().code, QUENCH_RT_INVALID);
  auto session = model->NewSession({.device = "cuda"});
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_EQ(session->device(), "cuda:0 Quench emulated device");
  const Context context;
  const Floats x = {1, 2, 3};
  const DeviceFloats device_x(context, x), y(context, 3);
  const View<const float> view(static_cast<const float*>(device_x.data()), 3, {3});
  ASSERT_TRUE(session->SetDeviceInput("x", view));
  ASSERT_TRUE(session->SetInput("cache", View<const float>(x, {3})));
  ASSERT_TRUE(session->SetDeviceOutput("y", y.data(), 12));
  ASSERT_TRUE(session->Run());
  EXPECT_EQ(y.Read(), LineOf(x));
  EXPECT_EQ(session->Output<float>("y")->data(), y.data());
  EXPECT_EQ((*session->Output<float>("next"))[2], 6);
  EXPECT_FALSE(session->SetDeviceInput("x", View<const float>(x, {3})));
}

}  // namespace
}  // namespace quench::device_test
