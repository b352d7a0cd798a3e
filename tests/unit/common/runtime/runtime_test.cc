#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/runtime/quench_rt.h"
#include "tests/unit/common/runtime/fake_model.h"

namespace quench::runtime_test {
namespace {

class RuntimeTest : public ::testing::Test {
 protected:
  ~RuntimeTest() override {
    quench_rt_session_free(session_);
    quench_rt_close(model_);
  }

  void Start(uint32_t threads = 1) {
    ASSERT_EQ(quench_rt_open_linked(fake_model_query, &model_, &error_), QUENCH_RT_OK)
        << error_.text;
    quench_rt_options options{};
    options.size = sizeof options;
    options.num_threads = threads;
    ASSERT_EQ(quench_rt_session_create(model_, &options, &session_, &error_), QUENCH_RT_OK)
        << error_.text;
  }

  int SetX(int64_t n, int32_t dtype = 1) {
    x_.assign(static_cast<size_t>(n) * 4, 0);
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = i % 2 == 0 ? static_cast<float>(i + 1) : -1.0f;
    const int64_t dims[] = {n, 4};
    const quench_rt_tensor tensor = {x_.data(), dims, dtype, 2};
    return quench_rt_set_input(session_, 0, &tensor, &error_);
  }

  int SetK(int64_t n, int64_t value = 0) {
    k_.assign(static_cast<size_t>(n), value);
    const quench_rt_tensor tensor = {k_.data(), &n, 7, 1};
    return quench_rt_set_input(session_, 1, &tensor, &error_);
  }

  int Set(int64_t n) {
    const int code = SetX(n);
    return code != QUENCH_RT_OK ? code : SetK(n);
  }

  void ExpectDoubled() {
    quench_rt_tensor y;
    ASSERT_EQ(quench_rt_get_output(session_, 0, &y, &error_), QUENCH_RT_OK);
    ASSERT_EQ(static_cast<size_t>(y.dims[0]) * 4, x_.size());
    for (size_t i = 0; i < x_.size(); ++i)
      EXPECT_EQ(static_cast<const float*>(y.data)[i], 2 * x_[i]);
    ASSERT_EQ(quench_rt_get_output(session_, 1, &y, &error_), QUENCH_RT_OK);
    ASSERT_EQ(static_cast<size_t>(y.dims[0]), x_.size() / 2);
    for (size_t i = 0; i < x_.size() / 2; ++i)
      EXPECT_EQ(static_cast<const float*>(y.data)[i], x_[2 * i]);
  }

  quench_rt_model* model_ = nullptr;
  quench_rt_session* session_ = nullptr;
  quench_rt_error error_{};
  std::vector<float> x_;
  std::vector<int64_t> k_;
};

TEST_F(RuntimeTest, RunsAtEverySize) {
  Start();
  for (const int64_t n : {2, 6, 4, 2, 6, 4, 2}) {
    ASSERT_EQ(Set(n), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
    ExpectDoubled();
    EXPECT_EQ(quench_rt_arena_bytes(session_), static_cast<uint64_t>(64 + 16 * n));
  }
}

TEST_F(RuntimeTest, RunsOnThreads) {
  Start(4);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(Set(6), QUENCH_RT_OK);
    ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
    ExpectDoubled();
  }
}

TEST_F(RuntimeTest, EachRunHasTheThreadsItIsGiven) {
  Start(2);
  uint64_t alone = 0;
  for (const uint32_t threads : {1, 4, 2, 0, 3, 1}) {
    ASSERT_EQ(quench_rt_set_threads(session_, threads, &error_), QUENCH_RT_OK) << error_.text;
    ASSERT_EQ(Set(6), QUENCH_RT_OK);
    ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
    ExpectDoubled();
    if (threads == 1) alone = quench_rt_memory_bytes(session_);
    const uint64_t scratch = alone - 192;  // of one thread, behind the arena
    EXPECT_EQ(quench_rt_memory_bytes(session_), 192 + (threads == 0 ? 2 : threads) * scratch);
  }
  EXPECT_EQ(quench_rt_set_threads(session_, 1025, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "num_threads is 1025, at most 1024 are possible");
  ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
  ExpectDoubled();
}

const quench_model* ModelForThousandCores(uint32_t max_abi_version) {
  static quench_model model;
  model = *fake_model_query(max_abi_version);
  model.size = sizeof model;
  model.num_cores = 1000;
  return &model;
}

TEST_F(RuntimeTest, WithoutANumberThreadsAreNoMoreThanCpus) {
  ASSERT_EQ(quench_rt_open_linked(ModelForThousandCores, &model_, &error_), QUENCH_RT_OK);
  const auto memory = [&](uint32_t threads) {
    quench_rt_options options{};
    options.size = sizeof options;
    options.num_threads = threads;
    quench_rt_session_free(session_);
    session_ = nullptr;
    EXPECT_EQ(quench_rt_session_create(model_, &options, &session_, &error_), QUENCH_RT_OK);
    EXPECT_EQ(Set(6), QUENCH_RT_OK);
    EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
    ExpectDoubled();
    return quench_rt_memory_bytes(session_);
  };
  const uint64_t scratch = memory(1) - 192;  // of one thread, behind the arena
  EXPECT_EQ(memory(0), 192 + std::min(quench_rt_cpus(), 1000u) * scratch);
  EXPECT_EQ(memory(100), 192 + 100 * scratch);
}

TEST_F(RuntimeTest, RunsOnTheCallersThreadsAndArena) {
  ASSERT_EQ(quench_rt_open_linked(fake_model_query, &model_, &error_), QUENCH_RT_OK);
  int calls = 0;
  alignas(64) char arena[1024];
  quench_rt_options options{};
  options.size = sizeof options;
  options.num_threads = 2;
  options.user = &calls;
  options.arena = arena;
  options.arena_bytes = sizeof arena;
  options.parallel_for = [](void* user, quench_task task, void* arg, int64_t count, int64_t) {
    ++*static_cast<int*>(user);
    const int32_t first = task(arg, count / 2, count, 1);
    return first != 0 ? first : task(arg, 0, count / 2, 0);
  };
  ASSERT_EQ(quench_rt_session_create(model_, &options, &session_, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Set(4), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
  ExpectDoubled();
  EXPECT_EQ(calls, 1);
}

TEST_F(RuntimeTest, ArenaThatIsTooSmallIsRefused) {
  ASSERT_EQ(quench_rt_open_linked(fake_model_query, &model_, &error_), QUENCH_RT_OK);
  alignas(64) char arena[64];
  quench_rt_options options{};
  options.size = sizeof options;
  options.arena = arena;
  options.arena_bytes = sizeof arena;
  ASSERT_EQ(quench_rt_session_create(model_, &options, &session_, &error_), QUENCH_RT_OK);
  ASSERT_EQ(Set(4), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "the arena has 64 bytes, this run needs 192");
}

TEST_F(RuntimeTest, WrongInputsAreNamed) {
  Start();
  EXPECT_EQ(SetX(4, 11), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: dtype is f64, the model takes f32");
  const int64_t dims[] = {4};
  float four[4] = {};
  const quench_rt_tensor flat = {four, dims, 1, 1};
  EXPECT_EQ(quench_rt_set_input(session_, 0, &flat, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: rank is 1, the model takes 2");
  EXPECT_EQ(quench_rt_set_input(session_, 7, &flat, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "there is no input 7, the model has 2");
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x` is not set; input `k` is not set");
}

TEST_F(RuntimeTest, WrongSizesAreNamed) {
  Start();
  float data[64] = {};
  const int64_t wide[] = {2, 5};
  const quench_rt_tensor tensor = {data, wide, 1, 2};
  ASSERT_EQ(quench_rt_set_input(session_, 0, &tensor, &error_), QUENCH_RT_OK);
  ASSERT_EQ(SetK(2), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: dim 1 is 5, the model takes 4");
  ASSERT_EQ(Set(8), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: dim 0 (`n`) is 8, the model takes 2..6");
  ASSERT_EQ(Set(3), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `x`: dim 0 (`n`) is 3, the model takes multiples of 2");
  ASSERT_EQ(SetX(4), QUENCH_RT_OK);
  ASSERT_EQ(SetK(2), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "input `k`: dim 0 (`n`) is 2, the other inputs make it 4");
}

TEST_F(RuntimeTest, FailedCheckNamesTheNodeAndTheSessionGoesOn) {
  Start();
  ASSERT_EQ(SetX(4), QUENCH_RT_OK);
  ASSERT_EQ(SetK(4, -1), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_CHECK);
  EXPECT_STREQ(error_.text, "node `filter` (Compress): k is negative");
  ASSERT_EQ(SetK(4), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
  ExpectDoubled();
}

TEST_F(RuntimeTest, CancelEndsARun) {
  Start();
  ASSERT_EQ(SetX(4), QUENCH_RT_OK);
  ASSERT_EQ(SetK(4, 1000), QUENCH_RT_OK);
  std::atomic<bool> over{false};
  std::thread canceller([&] {
    while (!over) quench_rt_cancel(session_);  // before the run there is nothing to cancel
  });
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_CANCELLED);
  over = true;
  canceller.join();
}

TEST_F(RuntimeTest, BoundOutputsAreWritten) {
  Start();
  ASSERT_EQ(Set(2), QUENCH_RT_OK);
  float y[8] = {};
  ASSERT_EQ(quench_rt_set_output(session_, 0, y, 4, &error_), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
  EXPECT_STREQ(error_.text, "output `y`: 4 bytes are bound, this run writes 32");
  ASSERT_EQ(quench_rt_set_output(session_, 0, y, sizeof y, &error_), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_EQ(y[2], 2 * x_[2]);
  ASSERT_EQ(quench_rt_set_output(session_, 1, y, sizeof y, &error_), QUENCH_RT_OK);
  EXPECT_EQ(quench_rt_run(session_, &error_), QUENCH_RT_INVALID);
}

TEST_F(RuntimeTest, PlanTellsOutputDims) {
  Start();
  ASSERT_EQ(Set(6), QUENCH_RT_OK);
  ASSERT_EQ(quench_rt_plan(session_, &error_), QUENCH_RT_OK) << error_.text;
  quench_rt_tensor y;
  ASSERT_EQ(quench_rt_get_output(session_, 0, &y, &error_), QUENCH_RT_OK);
  EXPECT_EQ(y.dims[0], 6);
  ASSERT_EQ(quench_rt_get_output(session_, 1, &y, &error_), QUENCH_RT_OK);
  EXPECT_EQ(y.dims[0], -1);
}

TEST_F(RuntimeTest, TapsAndTimes) {
  Start();
  ASSERT_EQ(Set(4), QUENCH_RT_OK);
  std::vector<float> seen;
  auto tap = [](void* user, uint32_t index, const quench_rt_tensor* tensor) {
    EXPECT_EQ(index, 0u);
    EXPECT_EQ(tensor->rank, 2);
    EXPECT_EQ(tensor->dims[0], 4);
    const auto* data = static_cast<const float*>(tensor->data);
    static_cast<std::vector<float>*>(user)->assign(data, data + 16);
  };
  ASSERT_EQ(quench_rt_set_tap(session_, tap, &seen, &error_), QUENCH_RT_OK);
  double seconds[2] = {};
  ASSERT_EQ(quench_rt_profile(session_, seconds, &error_), QUENCH_RT_OK) << error_.text;
  ASSERT_EQ(seen.size(), 16u);
  EXPECT_EQ(seen[4], 2 * x_[4]);
  EXPECT_GT(seconds[0] + seconds[1], 0);
}

TEST_F(RuntimeTest, OpensFromFileAndMemory) {
  ASSERT_EQ(quench_rt_open_file(FAKE_MODEL, &model_, &error_), QUENCH_RT_OK) << error_.text;
  EXPECT_STREQ(quench_rt_variant(model_)->name, "plain");
  const std::string bytes = *ReadFile(FAKE_MODEL);
  quench_rt_model* copies[2] = {};
  for (quench_rt_model*& copy : copies) {
    ASSERT_EQ(quench_rt_open_memory(bytes.data(), bytes.size(), &copy, &error_), QUENCH_RT_OK)
        << error_.text;
    EXPECT_STREQ(quench_rt_describe(copy)->name, "fake");
  }
  for (quench_rt_model* copy : copies) quench_rt_close(copy);
}

TEST_F(RuntimeTest, RefusesWithASentence) {
  const TempDir folder = *TempDir::Create();
  const std::string path = folder.path() / "m.so";
  EXPECT_EQ(quench_rt_open_file(path.c_str(), &model_, &error_), QUENCH_RT_IO);
  EXPECT_EQ(std::string(error_.text), "cannot open `" + path + "`: No such file or directory");
  std::ofstream(path) << "hello";
  EXPECT_EQ(quench_rt_open_file(path.c_str(), &model_, &error_), QUENCH_RT_NOT_A_MODEL);
  EXPECT_EQ(std::string(error_.text),
            "`" + path + "` is not a model library: it is not an ELF file");
  EXPECT_EQ(quench_rt_open_file(RUNTIME_LIBRARY, &model_, &error_), QUENCH_RT_NOT_A_MODEL);
  EXPECT_NE(std::string(error_.text).find("does not export `quench_model_query`"),
            std::string::npos)
      << error_.text;
  EXPECT_EQ(quench_rt_open_linked(fake_new_model_query, &model_, &error_), QUENCH_RT_ABI);
  EXPECT_STREQ(error_.text,
               "`linked model` needs a newer runtime: this one knows ABI versions up to 1");
  EXPECT_EQ(quench_rt_open_linked(fake_demanding_model_query, &model_, &error_), QUENCH_RT_CPU);
  EXPECT_STREQ(
      error_.text,
      "`linked model` cannot run here: variant `strong` needs others, which this CPU lacks");
}

// Words of a command's output.
std::set<std::string> Words(const std::string& command) {
  std::set<std::string> words;
  FILE* pipe = ::popen(command.c_str(), "r");
  char word[256];
  while (pipe != nullptr && std::fscanf(pipe, "%255s", word) == 1) words.insert(word);
  if (pipe != nullptr) ::pclose(pipe);
  return words;
}

TEST_F(RuntimeTest, ExportsWhatItsHeadersDeclareAndNothingElse) {
  const std::set<std::string> exported =
      Words("nm -D --defined-only " RUNTIME_LIBRARY " | awk '{print $3}'");
  ASSERT_FALSE(exported.empty());
  std::set<std::string> declared;
  for (const char* header : {RUNTIME_SOURCES "/abi.h", RUNTIME_SOURCES "/quench_rt.h"}) {
    const std::string text = *ReadFile(header);
    const std::regex name("\\b(quench_rt_\\w+)\\([^;{*]*[^;{]*\\);");
    for (auto each = std::sregex_iterator(text.begin(), text.end(), name);
         each != std::sregex_iterator(); ++each)
      declared.insert((*each)[1]);
  }
  EXPECT_EQ(exported, declared);
}

TEST_F(RuntimeTest, DamagedLibrariesNeverCrash) {
  const std::string good = *ReadFile(FAKE_MODEL);
  // Every truncation, and headers with bytes changed: inspected, never loaded unless the tables
  // hold.
  for (size_t size = 0; size < std::min<size_t>(good.size(), 4096); size += 7) {
    quench_rt_model* model = nullptr;
    EXPECT_NE(quench_rt_open_memory(good.data(), size, &model, &error_), QUENCH_RT_OK) << size;
    EXPECT_EQ(model, nullptr);
  }
  for (const size_t size : {size_t{64}, good.size() / 2, good.size() - 1}) {
    EXPECT_EQ(quench_rt_open_memory(good.data(), size, &model_, &error_), QUENCH_RT_NOT_A_MODEL);
    EXPECT_NE(std::string(error_.text).find("` is cut short: it has " + std::to_string(size)),
              std::string::npos)
        << error_.text;
  }
  std::string other = good;
  other[18] = static_cast<char>(
      0xb7);  // e_machine: AArch64 on an x86 machine, or x86 where that is at home
  if (other == good) other[18] = 62;
  EXPECT_EQ(quench_rt_open_memory(other.data(), other.size(), &model_, &error_),
            QUENCH_RT_NOT_A_MODEL);
  EXPECT_NE(std::string(error_.text).find("this machine is"), std::string::npos) << error_.text;
}

TEST(RuntimeSizeTest, LibraryIsUnder100KB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make the library larger";
#endif
  EXPECT_LE(std::filesystem::file_size(RUNTIME_LIBRARY), 100u * 1000);
}

}  // namespace
}  // namespace quench::runtime_test
