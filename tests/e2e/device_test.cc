// Commands that run libraries, on a GPU that the CPU stands for.
#include <gtest/gtest.h>

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
