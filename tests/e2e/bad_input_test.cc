#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/e2e/quench_process.h"

namespace quench::testing::bad_input_test {
namespace {

using Names = std::vector<std::string>;

void ExpectRefusal(const Outcome& outcome, int exit_code, const std::string& text) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_NE(outcome.err.find(text), std::string::npos)
      << "looked for `" << text << "` in: " << outcome.err;
}

TEST(BadInputTest, UsageErrorsExitWithTwo) {
  const Workspace work;
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"no-such-command"},
                                             {"compile"},
                                             {"compile", "m.onnx", "--opt-level", "5"},
                                             {"bench", "m.so", "--threads", "0"},
                                             {"compile", "m.onnx", "--stop-after", "no_such_pass"},
                                             {"verify", "m.onnx"}}) {
    EXPECT_EQ(work.Run(arguments).exit_code, 2);
  }
}

// A misspelt word is answered with what it may have been.
TEST(BadInputTest, UsageErrorsSayWhatWasMeant) {
  const Workspace work;
  const auto expect = [&](const Names& arguments, const std::string& text) {
    ExpectRefusal(work.Run(arguments), 2, "quench: error: " + text);
  };
  expect({"compil", "m.onnx"}, "unknown command `compil`; did you mean `compile`?");
  expect({"help", "compil"}, "unknown command `compil`; did you mean `compile`?");
  expect({"--progress", "none", "compil"}, "unknown command `compil`; did you mean `compile`?");
  expect({"workflow", "lst"}, "unknown command `lst`; did you mean `list`?");
  expect({}, "a command is missing");
  expect({"compile", "--targt", "x86-64", "m.onnx"},
         "unknown option `--targt`; did you mean `--target`?");
  expect({"compile"}, "MODEL is required");
  expect({"compile", "m.onnx", "n.onnx"}, "unexpected argument `n.onnx`");
  expect({"compile", "m.onnx", "--target"}, "--target: the value is missing");
  expect({"compile", "m.onnx", "--opt-level", "5"}, "--opt-level: 5 is not in 0 to 4");
  expect({"bench", "m.so", "--threads", "1.5"}, "--threads: `1.5` is not a whole number");
  expect({"compile", "m.onnx", "--emit", "obk"}, "--emit: `obk` is none of so, obj, a; did you");
  expect({"compile", DigitsModel(), "--target", "raspbery-pi/5"}, "unknown target `raspbery-pi/5`");
}

TEST(BadInputTest, ModelsThatAreNone) {
  const Workspace work;
  const std::string digits = *ReadFile(DigitsModel());
  work.Write("empty.onnx", "");
  work.Write("text.onnx", "this is not a model, it is a sentence");
  work.Write("half.onnx", digits.substr(0, digits.size() / 2));
  for (const char* name : {"empty.onnx", "text.onnx", "half.onnx"}) {
    const Outcome outcome = work.Run({"compile", name, "--output", "out"});
    EXPECT_EQ(outcome.exit_code, 1) << name;
    EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
  }
  ExpectRefusal(work.Run({"compile", "missing.onnx"}), 1, "missing.onnx");
  ExpectRefusal(work.Run({"compile", "."}), 1, "is a folder without");
  EXPECT_EQ(work.Files(), (Names{"empty.onnx", "half.onnx", "text.onnx"}));
}

// Names in other encodings are common; the import renames them, and nothing else is said.
TEST(BadInputTest, NamesThatAreNotUtf8) {
  const Workspace work;
  std::string digits = *ReadFile(DigitsModel());
  const size_t at = digits.find("conv1");
  ASSERT_NE(at, std::string::npos);
  digits.replace(at, 3, "c\xff\xfe");
  work.Write("latin.onnx", digits);
  const Outcome outcome = work.Run({"import", "latin.onnx", "--output", "latin.qm"});
  EXPECT_EQ(outcome.err.find("protobuf"), std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1) << outcome.exit_code;
}

TEST(BadInputTest, EveryPrefixOfAModelIsRefusedOrRead) {
  const Workspace work;
  const std::string digits = *ReadFile(DigitsModel());
  for (size_t size = 1; size < digits.size(); size += digits.size() / 12) {
    work.Write("cut.onnx", digits.substr(0, size));
    const int code = work.Run({"import", "cut.onnx"}).exit_code;
    EXPECT_TRUE(code == 0 || code == 1)
        << "exit code " << code << " for the first " << size << " bytes";
  }
}

TEST(BadInputTest, UnknownTargetListsNearNames) {
  const Workspace work;
  const Outcome outcome = work.Run({"compile", DigitsModel(), "--target", "aarch46"});
  ExpectRefusal(outcome, 2, "aarch64");
  EXPECT_EQ(work.Files(), Names{});
}

TEST(BadInputTest, ExistingOutputIsRefusedWithoutForce) {
  const Workspace work;
  std::filesystem::create_directory(work.path("out"));
  work.Write("out/precious.txt", "kept");
  ExpectRefusal(work.Run({"compile", DigitsModel(), "--output", "out"}), 1, "--force");
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out", "--force"}).exit_code, 0);
  EXPECT_EQ(*ReadFile(work.path("out/precious.txt")), "kept");
  EXPECT_TRUE(std::filesystem::exists(work.path("out/model.so")));
}

TEST(BadInputTest, UnwritableOutput) {
  const Workspace work;
  work.Write("file", "");
  EXPECT_EQ(work.Run({"compile", DigitsModel(), "--output", "file/out"}).exit_code, 1);
  if (geteuid() == 0) return;  // root may write anywhere
  std::filesystem::create_directory(work.path("locked"));
  std::filesystem::permissions(work.path("locked"), std::filesystem::perms(0500));
  EXPECT_EQ(work.Run({"compile", DigitsModel(), "--output", "locked/out"}).exit_code, 4);
}

Outcome OnSmallDisk(const Workspace& work, const std::string& folder, int kilobytes,
                    const std::string& script) {
  const std::vector<std::string> words = SmallDiskCommand(work, folder, kilobytes, script);
  return work.RunProgram(words.front(), {words.begin() + 1, words.end()});
}

TEST(BadInputTest, FullDiskLeavesNothing) {
  const Workspace work;
  if (OnSmallDisk(work, "small", 64, "true").exit_code != 0)
    GTEST_SKIP() << "no right to mount a small file system";
  const std::string list = "; code=$?; ls -A small; exit $code";
  const std::string quench = QUENCH_BINARY;
  const Outcome compile = OnSmallDisk(
      work, "small", 64, quench + " compile " + DigitsModel() + " --output small/out" + list);
  ExpectRefusal(compile, 1, "No space left");
  EXPECT_EQ(compile.out, "");
  const Outcome whole = OnSmallDisk(
      work, "small", 16384, quench + " compile " + DigitsModel() + " --output small/out" + list);
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  const Outcome run = OnSmallDisk(
      work, "small", 4,
      quench + " run " + DigitsModel() + " --random 1 --size batch=500 --output small" + list);
  ExpectRefusal(run, 1, "No space left");
  EXPECT_EQ(run.out.find(".npy"), std::string::npos) << run.out;
}

TEST(BadInputTest, WrongInputsAtRunTime) {
  const Workspace work;
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0);
  ExpectRefusal(work.Run({"run", "out/model.so"}), 1, "`image` is missing");
  ExpectRefusal(work.Run({"run", "out/model.so", "--input", "imgae=x.npy"}), 1, "`image`");
  ExpectRefusal(work.Run({"run", "out/model.so", "--input", "nonsense"}), 1, "NAME=VALUE");
  // The logits of a run have the wrong rank for an image.
  ASSERT_EQ(work.Run({"run", "out/model.so", "--random", "1"}).exit_code, 0);
  ExpectRefusal(work.Run({"run", "out/model.so", "--input", "image=logits.npy"}), 1, "rank");
  ExpectRefusal(work.Run({"run", DigitsModel(), "--input", "image=logits.npy"}), 1, "rank");
}

TEST(BadInputTest, LibrariesThatAreNone) {
  const Workspace work;
  ASSERT_EQ(work.Run({"compile", DigitsModel(), "--output", "out"}).exit_code, 0);
  const std::string library = *ReadFile(work.path("out/model.so"));
  work.Write("half.so", library.substr(0, library.size() / 2));
  work.Write("elf.so",
             "\x7f"
             "ELF and then nothing of the kind");
  for (const char* name : {"half.so", "elf.so", QUENCH_BINARY}) {
    EXPECT_EQ(work.Run({"bench", name}).exit_code, 1) << name;
  }
  ExpectRefusal(work.Run({"verify", "out/model.so", "out/model.so"}), 1, "compiled library");
}

TEST(BadInputTest, ShapesThatAreNone) {
  const Workspace work;
  for (const char* value : {"image=1,x", "image=1,-3", "image=1:float128", "image=", "image"})
    ExpectRefusal(work.Run({"import", DigitsModel(), "--shape", value}), 1, "--shape:");
}

TEST(BadInputTest, OptionsThatNameWhatIsNotThere) {
  const Workspace work;
  for (const std::vector<std::string>& extra :
       std::vector<std::vector<std::string>>{{"--shape", "nothing=1,1,8,8"},
                                             {"--size", "nothing=1..4"},
                                             {"--dtype", "image=float128"},
                                             {"--outputs", "nothing"},
                                             {"--freeze", "nothing=x.npy"},
                                             {"--shape", "image=1,x"},
                                             {"--size", "batch=9..3"}}) {
    std::vector<std::string> arguments = {"import", DigitsModel()};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const Outcome outcome = work.Run(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << extra[1];
    EXPECT_FALSE(outcome.err.empty());
  }
}

}  // namespace
}  // namespace quench::testing::bad_input_test
