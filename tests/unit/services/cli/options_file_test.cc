#include "services/cli/options_file.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/files.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/compile_options.h"
#include "services/codegen/options_proto.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/changed_options.h"

namespace quench::cli::options_file_test {
namespace {

using ::quench::testing::HasSubstr;
using ::quench::testing::Not;

class OptionsFileTest : public ::testing::Test {
 protected:
  // `text` as a file, with `words` behind its option; what is printed.
  std::string Parse(const std::string& text, std::vector<std::string> words = {},
                    const std::string& name = "project.txtpb") {
    compile_ = {};
    compile_.check = codegen::CheckMode::kAuto;
    EXPECT_TRUE(WriteFileAtomically(path(name), text).ok());
    CommandLine line("quench", "", "1", "");
    const Options options = line.Command("compile", "", [] {});
    for (const char* group : {"Common", "Code", "Output"})
      AddCompileOptions(options, group, compile_);
    std::string file;
    AddOptionsFile(options, FileReader::kCompile, file, [this](const OptionsFile& read) {
      compile_.class_names = read.class_names;
      compile_.preprocessing = read.preprocessing;
    });
    words.insert(words.begin(), {"quench", "compile", "--options", path(name)});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ::testing::internal::CaptureStderr();
    const std::optional<int> code = line.Parse(static_cast<int>(argv.size()), argv.data());
    const std::string printed = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code.value_or(0), printed.empty() ? 0 : 2) << printed;
    return printed;
  }
  // Names and values of what `text` says for a command: "--per-channel", "--method mse".
  std::vector<std::string> Read(const std::string& text, FileReader reader) {
    EXPECT_TRUE(WriteFileAtomically(path("project.txtpb"), text).ok());
    const absl::StatusOr<OptionsFile> file = ReadOptionsFile(path("project.txtpb"), reader);
    if (!file.ok()) return {std::string(file.status().message())};
    std::vector<std::string> found;
    for (const FileOption& option : file->options) {
      found.push_back(option.name);
      for (const std::string& value : option.values) found.back() += " " + value;
    }
    return found;
  }
  std::string path(const std::string& name) const { return (folder_->path() / name).string(); }

  absl::StatusOr<TempDir> folder_ = TempDir::Create();
  codegen::CompileOptions compile_;
};

TEST_F(OptionsFileTest, EveryOptionOfACompilationMayBeInAFile) {
  for (const auto& changed : codegen::options_test::ChangedOptions()) {
    SCOPED_TRACE(changed.row->field);
    codegen::CompileOptions expected = changed.options;
    if (changed.row->member != "check") expected.check = codegen::CheckMode::kAuto;
    gateway::v1::CompileBatch batch;
    *batch.add_choices()->mutable_compile_options() = codegen::ToProto(expected);
    std::string text, json;
    ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(batch, &text));
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(batch, &json).ok());
    EXPECT_EQ(Parse(text), "") << text;
    EXPECT_EQ(codegen::options_test::Differences(compile_, expected), std::vector<std::string>{});
    EXPECT_EQ(Parse(json, {}, "project.json"), "") << json;
    EXPECT_EQ(codegen::options_test::Differences(compile_, expected), std::vector<std::string>{});
  }
}

TEST_F(OptionsFileTest, TheCommandLineGoesFirst) {
  const std::string text =
      "choices { compile_options { opt_level: 1 max_size: 3 channel_layout: CHANNEL_LAYOUT_LAST } "
      "}";
  EXPECT_EQ(Parse(text, {"--opt-level", "2", "--channel-layout=first"}), "");
  EXPECT_EQ(compile_.opt_level, 2);
  EXPECT_EQ(compile_.max_size, 3);
  EXPECT_EQ(compile_.channel_layout, "first");
}

TEST_F(OptionsFileTest, ContradictionsAreToldAsOnTheCommandLine) {
  const std::string text = "choices { compile_options { tune_seconds: 5 } }";
  EXPECT_THAT(Parse(text), HasSubstr("--tune-seconds needs --opt-level 4, not 3"));
  EXPECT_EQ(Parse(text, {"--opt-level", "4"}), "");
  EXPECT_EQ(compile_.tune_seconds, 5);
}

TEST_F(OptionsFileTest, MistakesAreNamedWithFileLineAndField) {
  EXPECT_THAT(Parse("choices {\n  compile_options {\n    no_winogrd: true\n  }\n}\n"),
              HasSubstr("project.txtpb:3:15: quench.codegen.v1.CompileOptions has no field "
                        "`no_winogrd`; did you mean `no_winograd`?"));
  EXPECT_THAT(Parse("choices {\n  compile_options { channel_layout: CHANNEL_LAYOUT_LATS }\n}\n"),
              HasSubstr("project.txtpb:2:"));
  EXPECT_THAT(Parse("choices { compile_options { channel_layout: CHANNEL_LAYOUT_LATS } }"),
              HasSubstr("`CHANNEL_LAYOUT_LATS` is not a value of `channel_layout`; did you mean "
                        "`CHANNEL_LAYOUT_LAST`"));
  EXPECT_THAT(Parse("choices {\n  compile_options {\n    max_size: \"big\"\n  }\n}\n"),
              HasSubstr("project.txtpb:3:15: `max_size`: Expected"));
  EXPECT_THAT(Parse("choices {\n  compile_options {\n    max_size: 0.5\n  }\n}\n"),
              HasSubstr("project.txtpb:3: `choices.compile_options.max_size`: 0.5 is less than 1"));
  EXPECT_THAT(
      Parse("choices { compile_options {\n opt_level: 9 } }"),
      HasSubstr("project.txtpb:2: `choices.compile_options.opt_level`: 9 is not in 0 to 4"));
  const std::string two = Parse("choices { compile_options { max_size: 0.5\n opt_level: 9 } }");
  EXPECT_THAT(two, HasSubstr(":1: `choices.compile_options.max_size`"));
  EXPECT_THAT(two, HasSubstr(":2: `choices.compile_options.opt_level`"));
}

TEST_F(OptionsFileTest, MistakesInJsonAreNamedToo) {
  const std::string text = "{\"choices\": [\n  {\"compileOptions\": {\"noWinogrd\": true}}\n]}";
  EXPECT_THAT(Parse(text, {}, "project.json"), HasSubstr("project.json:2: "));
  EXPECT_THAT(Parse(text, {}, "project.json"), HasSubstr("noWinogrd"));
  EXPECT_THAT(
      Parse("{\"choices\": [{\"compile_options\": {\"no_winogrd\": true}}]}", {}, "project.json"),
      HasSubstr("did you mean `no_winograd`"));
  EXPECT_THAT(
      Parse("{\"choices\": [{\"compile_options\": {\"max_size\": 0.5}}]}", {}, "project.json"),
      HasSubstr("project.json: `choices.compile_options.max_size`: 0.5 is less than 1"));
  EXPECT_THAT(
      Parse("{\"choices\": [\n{\"compile_options\": {\"channel_layout\": \"LAST\"}}]}", {},
            "project.json"),
      HasSubstr("project.json:2: (choices[0].compile_options.channel_layout): invalid value "
                "\"LAST\" for type"));
  EXPECT_THAT(
      Parse("{\"choices\": [{\"compile_options\": {\"channel_layout\": \"LAST\"}}]}", {},
            "project.json"),
      HasSubstr(
          "; there are CHANNEL_LAYOUT_UNSPECIFIED, CHANNEL_LAYOUT_FIRST, CHANNEL_LAYOUT_LAST"));
  EXPECT_THAT(Parse("{", {}, "project.json"), HasSubstr("project.json: "));
  EXPECT_THAT(Parse("choices {}", {}, "project.yaml"),
              HasSubstr("project.yaml: configuration is read from"));
}

TEST_F(OptionsFileTest, NothingInItIsIgnored) {
  for (const auto& [text, words] : std::map<std::string, std::string>{
           {"models { name: \"m\" }",
            "`models` has no meaning in a file: the command line names the model"},
           {"targets { name: \"host\" host { machine: \"x86_64\" } }",
            "`targets.host` has no meaning"},
           {"choices { compile_options { taps: true } }",
            "`choices.compile_options.taps` has no meaning"},
           {"choices { compile_options { tap_values: TAP_VALUES_MODEL } }",
            "`choices.compile_options.tap_values` has no option"},
           {"choices { quantize { options { switches: true } } }",
            "`choices.quantize.options.switches` has no option"},
           {"choices { quantize { trial_target { name: \"host\" } } }",
            "`choices.quantize.trial_target.name` has no option"},
           {"choices { quantize { statistics { size_bytes: 1 } } }", "--calibration FILE"},
           {"choices { quantize { calibrate { samples { manifest {} } } } }",
            "--calibration-data PATH"},
           {"choices { quantize { calibrate { samples { seed: 2 } } } }",
            "samples.seed` has no option"},
           {"choices { name: \"a\" } choices { name: \"b\" }", "`choices` is there 2 times"},
           {"targets { name: \"a\" } targets { name: \"b\" }", "`targets` is there 2 times"},
           // The command of this test has no such options.
           {"choices { passes { batch: 2 } }", "there is no option --batch in this command"}}) {
    EXPECT_THAT(Parse(text), HasSubstr("project.txtpb:1: "));
    EXPECT_THAT(Parse(text), HasSubstr(words));
  }
  EXPECT_EQ(Parse("choices { name: \"small\" }"), "");
  EXPECT_EQ(Parse(""), "");
}

constexpr char kInteger[] = R"(
targets { name: "raspberry-pi/5" host_target: "x86-64" label: "pi" }
choices {
  name: "small"
  uuid: "123e4567-e89b-12d3-a456-426614174000"
  passes { batch: 2 disabled: "dead_code" disabled: "fold_constants" float16: false }
  compile_options { header_prefix: "net" no_winograd: false }
  quantize {
    options {
      activation_type: ELEMENT_TYPE_U8 kernel_type: ELEMENT_TYPE_I8 bias_type: ELEMENT_TYPE_F32
      per_channel: true symmetric: true power_of_two: true bias_correction: true
      method: "percentile" percentile: 99.5 source: RANGE_SOURCE_STATIC
      include: "a" include: "b" exclude: "op:Gemm" disabled_passes: "fuse_groups" block_size: 0
    }
    equalize: true split_parts: 3 outlier_share: 0.02
    calibrate { samples { random: 8 images: "unit" } }
    select { budget { max_drop: 0.005 min_sqnr_db: 30 } sensitivity_samples: 16 }
    adapt_rounding {}
  }
})";

TEST_F(OptionsFileTest, EachFieldIsTheOptionOfItsMeaning) {
  const std::vector<std::string> both = {"--kernel-dtype int8", "--bias-dtype float32",
                                         "--per-channel",       "--symmetric",
                                         "--power-of-two",      "--bias-correction",
                                         "--method percentile", "--percentile 99.5",
                                         "--type static",       "--include a b",
                                         "--exclude op:Gemm",   "--no-fuse-groups",
                                         "--block-size 0",      "--equalize"};
  const std::vector<std::string> late = {"--split-tensors 3",  "--max-drop 0.5%",
                                         "--min-sqnr 30",      "--sensitivity-samples 16",
                                         "--split-outliers 2", "--rounding adaptive"};
  std::vector<std::string> compile = {"--batch 2",
                                      "--no-dead-code",
                                      "--no-fold-constants",
                                      "--prefix net",
                                      "--uuid 123e4567-e89b-12d3-a456-426614174000",
                                      "--quantize uint8"};
  compile.insert(compile.end(), both.begin(), both.end());
  for (const char* each :
       {"--calibration-random 8", "--images unit", "--target raspberry-pi/5", "--host x86-64"})
    compile.emplace_back(each);
  compile.insert(compile.end(), late.begin(), late.end());
  std::vector<std::string> quantize = {"--batch 2", "--no-dead-code", "--no-fold-constants",
                                       "--activation-dtype uint8"};
  quantize.insert(quantize.end(), both.begin(), both.end());
  quantize.insert(quantize.end(), late.begin(), late.end());
  const auto sorted = [](std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    return names;
  };
  EXPECT_EQ(sorted(Read(kInteger, FileReader::kCompile)), sorted(compile));
  EXPECT_EQ(sorted(Read(kInteger, FileReader::kQuantize)), sorted(quantize));
  EXPECT_EQ(Read("choices { quantize {} }", FileReader::kCompile),
            std::vector<std::string>{"--quantize int8"});
  EXPECT_EQ(Read("choices { quantize {} }", FileReader::kQuantize), std::vector<std::string>{});
}

}  // namespace
}  // namespace quench::cli::options_file_test
