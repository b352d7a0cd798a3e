// Each row of options.def: its mapping to messages and back, its part of UUIDs, its range.
#include "services/codegen/options/options.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "services/codegen/options/checks.h"
#include "services/codegen/options/uuid_text.h"
#include "services/codegen/options_proto.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/codegen/changed_options.h"

namespace quench::codegen::options_test {
namespace {

using ::quench::testing::HasSubstr;

// Fields in which two messages differ.
std::set<std::string> DifferentFields(const v1::CompileOptions& a, const v1::CompileOptions& b) {
  std::set<std::string> fields;
  const google::protobuf::Descriptor& type = *v1::CompileOptions::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    google::protobuf::util::MessageDifferencer differencer;
    std::vector<const google::protobuf::FieldDescriptor*> only = {type.field(i)};
    if (!differencer.CompareWithFields(a, b, only, only)) fields.insert(type.field(i)->name());
  }
  return fields;
}

TEST(OptionsTest, EveryOptionGoesThroughItsFieldAlone) {
  for (const ChangedOption& changed : ChangedOptions()) {
    SCOPED_TRACE(changed.row->member);
    EXPECT_EQ(Differences(changed.before, changed.options),
              std::vector<std::string>{changed.row->member});
    const v1::CompileOptions message = ToProto(changed.options);
    EXPECT_EQ(DifferentFields(message, ToProto(changed.before)),
              std::set<std::string>{changed.row->field});
    const absl::StatusOr<CompileOptions> back = FromProto(message);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(Differences(*back, changed.options), std::vector<std::string>{});
  }
}

TEST(OptionsTest, EveryFieldIsOfARowOrMappedByHand) {
  std::set<std::string> known = {"taps", "tap_values", "passes"};
  for (const OptionRow& row : OptionRows())
    EXPECT_TRUE(known.insert(row.field).second) << row.field;
  std::set<std::string> fields;
  const google::protobuf::Descriptor& type = *v1::CompileOptions::descriptor();
  for (int i = 0; i < type.field_count(); ++i) fields.insert(type.field(i)->name());
  EXPECT_EQ(fields, known);
}

TEST(OptionsTest, RequestsThatSayNothingHaveTheDefaultsAndACheck) {
  CompileOptions expected;
  expected.check = CheckMode::kAuto;
  EXPECT_EQ(Differences(*FromProto({}), expected), std::vector<std::string>{});
}

TEST(OptionsTest, EveryOptionEntersUuidsAsItsRowSays) {
  std::set<std::string> outside;  // options that no library depends on
  for (const ChangedOption& changed : ChangedOptions()) {
    SCOPED_TRACE(changed.row->member);
    EXPECT_EQ(UuidText(changed.options) != UuidText(changed.before), changed.row->in_uuid);
    if (!changed.row->in_uuid) outside.insert(changed.row->member);
  }
  EXPECT_EQ(outside, (std::set<std::string>{"check", "header_prefix", "tune_seconds"}));
}

// The text as it has been since the first libraries: equal requests must keep their UUIDs.
std::string ExpectedText(const CompileOptions& options) {
  std::string text = fmt::format(" {} {} {} {}", options.opt_level, options.channel_layout,
                                 static_cast<int>(options.emit), options.taps != Taps::kNone);
  if (options.taps == Taps::kRunningCode) text += " running-code";
  if (!options.winograd) text += " no-winograd";
  if (!options.half_sums) text += " no-float16-sums";
  if (options.tf32) text += " tf32";
  text += fmt::format(" max-size {}", options.max_size);
  if (options.measured) {
    text += fmt::format(" rank {}", options.measured->rank);
    for (const auto& [candidate, time] : options.measured->microseconds)
      text += fmt::format(" {} {}", candidate, time);
  }
  for (const std::string& pass : options.passes.disabled) text += " no-" + pass;
  for (const std::string& name : options.class_names) text += " class " + name;
  return text + " " + options.preprocessing;
}

TEST(OptionsTest, TextOfUuidsNeverChanges) {
  CompileOptions plain;
  plain.emit = Emit::kSharedLibrary;
  EXPECT_EQ(UuidText(plain), " 3  1 false max-size 1.35 ");
  int combinations = 0;
  for (const int level : {0, 3, 4})
    for (const char* layout : {"", "first", "last"})
      for (const Emit emit : {Emit::kSharedLibrary, Emit::kObject, Emit::kArchive})
        for (const Taps taps : {Taps::kNone, Taps::kModelValues, Taps::kRunningCode})
          for (int switches = 0; switches < 64; ++switches) {
            CompileOptions options;
            options.opt_level = level;
            options.channel_layout = layout;
            options.emit = emit;
            options.taps = taps;
            options.winograd = (switches & 1) != 0;
            options.half_sums = (switches & 2) != 0;
            if ((switches & 4) != 0) options.max_size = 2.5;
            if ((switches & 8) != 0) {
              options.class_names = {"cat", "dog"};
              options.preprocessing = R"({"scale":2})";
              options.tune_seconds = 7;
              options.header_prefix = "net";
              options.check = CheckMode::kFull;
            }
            if ((switches & 16) != 0) options.passes.disabled = {"fuse_groups", "dead_code"};
            options.tf32 = (switches & 32) != 0;
            if (level == 4) options.measured = MeasuredChoice{2, {{"a", 1.5}, {"b", 20}}};
            EXPECT_EQ(UuidText(options), ExpectedText(options));
            ++combinations;
          }
  EXPECT_EQ(combinations, 5184);
}

TEST(OptionsTest, NumbersStayInTheirRanges) {
  for (const OptionRow& row : OptionRows()) {
    if (row.kind != OptionKind::kNumber) continue;
    SCOPED_TRACE(row.member);
    CompileOptions options;
#define QUENCH_NUMBER(type, named, default, low, ...) \
  if (row.member == #named) options.named = (low) - 1;
#include "services/codegen/options/options.def"
    std::string words = row.member;
    std::replace(words.begin(), words.end(), '_', ' ');
    EXPECT_THAT(std::string(CheckOptions(options).message()),
                HasSubstr(fmt::format("{} is {}, it must be {} ", words, row.low - 1, row.low)));
  }
  CompileOptions options;
  options.max_size = std::nan("");
  options.channel_layout = "middle";
  options.opt_level = 5;
  const std::string problems(CheckOptions(options).message());
  EXPECT_THAT(problems, HasSubstr("opt level is 5, it must be 0 to 4"));
  EXPECT_THAT(problems, HasSubstr("max size is nan, it must be 1 or more"));
  EXPECT_THAT(problems, HasSubstr("channel layout is `middle`, it must be `first` or `last`"));
  EXPECT_TRUE(CheckOptions({}).ok());
}

TEST(OptionsTest, FieldErrorsNameTheField) {
  for (const OptionRow& row : OptionRows()) {
    if (row.kind != OptionKind::kChoice) continue;
    v1::CompileOptions message;
    message.GetReflection()->SetEnumValue(
        &message, v1::CompileOptions::descriptor()->FindFieldByName(row.field), 99);
    EXPECT_THAT(
        std::string(FromProto(message).status().message()),
        HasSubstr(fmt::format("options.{}: 99 is not a value of quench.codegen.v1.", row.field)));
  }
  v1::CompileOptions message;
  message.set_tune_seconds(5);
  EXPECT_THAT(std::string(FromProto(message).status().message()),
              HasSubstr("options.tune_seconds: given without opt_level 4, which it is about"));
  message.set_opt_level(4);
  EXPECT_EQ(FromProto(message)->tune_seconds, 5);
  message.set_tap_values(v1::TAP_VALUES_MODEL);
  EXPECT_THAT(std::string(FromProto(message).status().message()),
              HasSubstr("options.tap_values: given without `taps`"));
  message.set_taps(true);
  message.set_check(v1::CHECK_FULL);
  EXPECT_THAT(std::string(FromProto(message).status().message()), HasSubstr("options.check: full"));
}

TEST(OptionsTest, TapsAreTwoFields) {
  for (const Taps taps : {Taps::kModelValues, Taps::kRunningCode}) {
    CompileOptions options;
    options.taps = taps;
    EXPECT_EQ(Differences(*FromProto(ToProto(options)), options), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace quench::codegen::options_test
