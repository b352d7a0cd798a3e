// Commands that run libraries, on a GPU that the CPU stands for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/quench_process.h"
#include "tests/support/matchers.h"

namespace quench::testing::device_test {
namespace {

using Words = std::vector<std::string>;

constexpr char kEmulated[] = "cuda -arch=emulated -host=x86-64-v3";

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(EMULATED_DRIVER));  // the build makes it
    setenv("QUENCH_CUDA_DRIVER", EMULATED_DRIVER, /*overwrite=*/1);
    compiled_ = Run({"compile", DigitsModel(), "--output", "gpu", "--target", kEmulated}).out;
    Run({"compile", DigitsModel(), "--output", "cpu"});
  }
  void TearDown() override { unsetenv("QUENCH_CUDA_DRIVER"); }

  Outcome Run(const Words& words) const {
    Outcome outcome = work_.Run(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  // The report of a command that runs the library for GPUs.
  nlohmann::json Report(Words words, const std::string& device) const {
    words.insert(words.end(), {"--format", "json"});
    if (!device.empty()) words.insert(words.end(), {"--device", device});
    return nlohmann::json::parse(Run(words).out, nullptr, /*allow_exceptions=*/false);
  }

  const Workspace work_;
  std::string compiled_;  // what compile said of "gpu"
};

TEST_F(DeviceTest, CompileReportsTheMemoryOfBoth) {
  EXPECT_THAT(compiled_, HasSubstr(" MB), on the GPU "));
}

TEST_F(DeviceTest, EncryptedLibrariesRunThere) {
  work_.Write("word", "correct horse\n");
  Run({"compile", DigitsModel(), "--output", "sealed", "--target", kEmulated, "--encrypt",
       "--password-file", "word"});
  const Words key = {"--key", "sealed/modelKey.bin", "--password-file", "word"};
  Words run = {"run", "sealed/model.so", "--random", "1"};
  run.insert(run.end(), key.begin(), key.end());
  EXPECT_EQ(Report(run, "cuda").at("variant"), "cuda-emulated");
  EXPECT_EQ(Report(run, "cpu").at("variant"), "x86-64-v3");
  Words verify = {"verify", DigitsModel(), "sealed/model.so", "--device", "cuda"};
  verify.insert(verify.end(), key.begin(), key.end());
  Run(verify);
}

TEST_F(DeviceTest, CompileChecksTheCodeOfBoth) {
  EXPECT_THAT(compiled_, HasSubstr("variant cuda-emulated and x86-64-v3, against the interpreter"));
}

TEST_F(DeviceTest, ReportsNameIt) {
  for (const Words& command : {Words{"run", "gpu/model.so", "--random", "1"},
                               Words{"bench", "gpu/model.so", "--seconds", "0.01"},
                               Words{"bench", "gpu/model.so", "--seconds", "0.01", "--profile"}}) {
    SCOPED_TRACE(command[0]);
    for (const char* device : {"", "cuda", "cuda:0"}) {
      const nlohmann::json report = Report(command, device);
      EXPECT_EQ(report.at("device"), "cuda:0 Quench emulated device");
      EXPECT_EQ(report.at("variant"), "cuda-emulated");
    }
    EXPECT_EQ(Report(command, "cpu").at("device"), "cpu");
    EXPECT_EQ(Report(command, "cpu").at("variant"), "x86-64-v3");
    EXPECT_THAT(Run(command).out, HasSubstr("on cuda:0 Quench emulated device\n"));
  }
}

TEST_F(DeviceTest, ResultsAreCheckedThere) {
  for (const char* device : {"cuda", "cpu"}) {
    Run({"verify", DigitsModel(), "gpu/model.so", "--device", device});
    Run({"infer", DigitsModel(), "--random", "1", "--target", kEmulated, "--device", device});
    // The reference has no code for GPUs, and runs on the CPU.
    const Outcome compared =
        Run({"compare", "cpu/model.so", "gpu/model.so", "--random", "2", "--device", device});
    EXPECT_THAT(compared.out, HasSubstr("agreement  100.00 %"));
  }
}

TEST_F(DeviceTest, LayersAreThoseOfTheirCode) {
  const Outcome there = Run({"verify", DigitsModel(), "gpu/model.so", "--per-layer"});
  EXPECT_THAT(there.out, HasSubstr("device     cuda:0 Quench emulated device\n"));
  EXPECT_EQ(there.out.find("layers are those"), std::string::npos);
  const nlohmann::json report =
      Report({"verify", DigitsModel(), "gpu/model.so", "--per-layer"}, "cuda");
  EXPECT_EQ(report.at("device"), "cuda:0 Quench emulated device");
  EXPECT_EQ(report.at("kernels").at("layers_device"), report.at("device"));
  EXPECT_EQ(Report({"verify", DigitsModel(), "gpu/model.so", "--per-layer"}, "cpu")
                .at("kernels")
                .at("layers_device"),
            "cpu");
}

// Statistics of the same samples, run on a GPU and on the CPU.
TEST_F(DeviceTest, SamplesOfCalibrationRunThere) {
  const auto calibrate = [&](const std::string& file, const Words& more) {
    Words words = {"calibrate", DigitsModel(), "--random", "20", "--output", file};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  };
  const auto values = [&](const std::string& file) {
    return nlohmann::json::parse(Run({"calibrate", file, "--format", "json"}).out).at("values");
  };
  EXPECT_THAT(calibrate("gpu.stats", {}).out, HasSubstr("device   cuda:0 Quench emulated device"));
  EXPECT_EQ(calibrate("asked.stats", {"--use-cuda"}).err.find("note"), std::string::npos);
  calibrate("named.stats", {"--device", "cuda:0"});
  EXPECT_EQ(calibrate("cpu.stats", {"--device", "cpu"}).out.find("device"), std::string::npos);
  const nlohmann::json gpu = values("gpu.stats"), cpu = values("cpu.stats");
  EXPECT_EQ(*ReadFile(work_.path("asked.stats")), *ReadFile(work_.path("gpu.stats")));
  EXPECT_EQ(*ReadFile(work_.path("named.stats")), *ReadFile(work_.path("gpu.stats")));
  ASSERT_EQ(gpu.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_EQ(gpu[i].at("name"), cpu[i].at("name"));
    const double low = cpu[i].at("low"), high = cpu[i].at("high");
    const double width = std::max({std::abs(low), std::abs(high), 1e-30});
    for (const char* key : {"low", "high", "mean", "standard_deviation", "mean_low", "mean_high"}) {
      EXPECT_NEAR(gpu[i].at(key).get<double>(), cpu[i].at(key).get<double>(), 1e-5 * width)
          << cpu[i].at("name") << " " << key;
    }
  }
  EXPECT_THAT(work_
                  .Run({"calibrate", DigitsModel(), "--random", "1", "--output", "x.stats",
                        "--device", "cuda:3"})
                  .err,
              HasSubstr("--device: there is no GPU 3, the driver has 1"));
}

TEST_F(DeviceTest, CalibrationFallsBackWithANote) {
  setenv("QUENCH_CUDA_DRIVER", "/nonexistent.so", /*overwrite=*/1);
  Words words = {"calibrate", DigitsModel(), "--random", "2", "--output"};
  words.emplace_back("auto.stats");
  EXPECT_EQ(Run(words).err.find("note"), std::string::npos);
  words.back() = "cuda.stats";
  words.emplace_back("--use-cuda");
  EXPECT_THAT(Run(words).err, HasSubstr("note: --use-cuda: there is no GPU"));
  EXPECT_EQ(*ReadFile(work_.path("cuda.stats")), *ReadFile(work_.path("auto.stats")));
}

TEST_F(DeviceTest, OnesThatAreNotThereAreErrors) {
  for (const Words& command : {Words{"run", "gpu/model.so", "--random", "1"},
                               Words{"bench", "gpu/model.so", "--seconds", "0.01"},
                               Words{"verify", DigitsModel(), "gpu/model.so"},
                               Words{"compare", "cpu/model.so", "gpu/model.so", "--random", "1"}}) {
    Words words = command;
    words.insert(words.end(), {"--device", "cuda:3"});
    const Outcome outcome = work_.Run(words);
    EXPECT_EQ(outcome.exit_code, 1) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("there is no GPU 3, the driver has 1"));
  }
}

}  // namespace
}  // namespace quench::testing::device_test
