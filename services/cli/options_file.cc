#include "services/cli/options_file.h"

#include <absl/status/statusor.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "common/base/status.h"
#include "common/steps/read_config.h"
#include "quench/gateway/v1/workflows.pb.h"
#include "services/codegen/options/rows.h"

namespace quench::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using steps::FieldLines;

// How a field's value becomes an option's.
enum class Form {
  kPlain,    // texts, numbers, names of values; a flag if the field is a bool
  kPercent,  // a share: 0.02 is 2
  kPercentSign,
  kPassNames,  // an option --no-PASS for each
  kPresent,  // a message whose presence is the option, with the value `note`; its fields are read too
  kName,     // names something and has no effect
  kInstead,  // refused: `note` is what to do instead
};

struct FileField {
  std::string_view path;
  std::string_view option;
  Form form = Form::kPlain;
  std::string_view note = "";
  bool compile_only = false;
};

constexpr char kQuantize[] = "--quantize";
constexpr char kSamplesHere[] = "files of samples are given by --calibration-data PATH";
constexpr char kEvaluationHere[] = "samples are given by --evaluation-data PATH";
constexpr char kRoundingHere[] = "samples are given by --rounding-data PATH";
constexpr char kStatisticsHere[] = "statistics are given by --calibration FILE";

// Fields of a CompileBatch and the options that they are, but those that have rows.
constexpr FileField kFields[] = {
    {"models", "", Form::kInstead, "the command line names the model"},
    {"targets.name", "--target", Form::kPlain, "", true},
    {"targets.host_target", "--host", Form::kPlain, "", true},
    {"targets.host", "", Form::kInstead, "the CPU of this machine is known", true},
    {"targets.label", "", Form::kName},
    {"choices.name", "", Form::kName},
    {"choices.uuid", "--uuid", Form::kPlain, "", true},
    {"choices.passes.batch", "--batch"},
    {"choices.passes.disabled", "--no-", Form::kPassNames},
    {"choices.passes.stop_after", "--stop-after"},
    {"choices.passes.float16", "--float16"},
    {"choices.passes.bfloat16", "--bfloat16"},
    {"choices.passes.magnitudes", "", Form::kInstead, kStatisticsHere},
    {"choices.compile_options.taps", "", Form::kInstead, "libraries with taps have no use here"},
    {"choices.compile_options.passes", "", Form::kInstead, "`choices.passes` is read"},
    {"choices.quantize", kQuantize, Form::kPresent, "int8", true},
    {"choices.quantize.options.activation_type", kQuantize},
    {"choices.quantize.options.kernel_type", "--kernel-dtype"},
    {"choices.quantize.options.bias_type", "--bias-dtype"},
    {"choices.quantize.options.per_channel", "--per-channel"},
    {"choices.quantize.options.symmetric", "--symmetric"},
    {"choices.quantize.options.power_of_two", "--power-of-two"},
    {"choices.quantize.options.bias_correction", "--bias-correction"},
    {"choices.quantize.options.method", "--method"},
    {"choices.quantize.options.percentile", "--percentile"},
    {"choices.quantize.options.source", "--type"},
    {"choices.quantize.options.include", "--include"},
    {"choices.quantize.options.exclude", "--exclude"},
    {"choices.quantize.options.disabled_passes", "--no-", Form::kPassNames},
    {"choices.quantize.options.block_size", "--block-size"},
    {"choices.quantize.options.single_operators", "", Form::kInstead,
     "`quench quantize --for onnxruntime` does that"},
    {"choices.quantize.equalize", "--equalize"},
    {"choices.quantize.split_parts", "--split-tensors"},
    {"choices.quantize.outlier_share", "--split-outliers", Form::kPercent},
    {"choices.quantize.calibrate.samples.random", "--calibration-random", Form::kPlain, "", true},
    {"choices.quantize.calibrate.samples.images", "--images", Form::kPlain, "", true},
    {"choices.quantize.calibrate.samples.manifest", "", Form::kInstead, kSamplesHere, true},
    {"choices.quantize.statistics", "", Form::kInstead, kStatisticsHere},
    {"choices.quantize.select.budget.max_drop", "--max-drop", Form::kPercentSign},
    {"choices.quantize.select.budget.min_sqnr_db", "--min-sqnr"},
    {"choices.quantize.select.sensitivity_samples", "--sensitivity-samples"},
    {"choices.quantize.select.samples", "", Form::kInstead, kEvaluationHere},
    {"choices.quantize.adapt_rounding", "--rounding", Form::kPresent, "adaptive"},
    {"choices.quantize.adapt_rounding.samples", "", Form::kInstead, kRoundingHere},
};

const std::map<std::string, FileField>& Fields() {
  static const auto* const fields = [] {
    auto* all = new std::map<std::string, FileField>;
    for (const FileField& field : kFields) (*all)[std::string(field.path)] = field;
    for (const codegen::OptionRow& row : codegen::OptionRows()) {
      const std::string path = "choices.compile_options." + row.field;
      (*all)[path] = {path, row.flag, Form::kPlain, "", true};
    }
    return all;
  }();
  return *fields;
}

// Values of options by the names of enumerators; "": as if the field were absent.
const std::map<std::string, std::string>& Words() {
  static const std::map<std::string, std::string> words = {
      {"ELEMENT_TYPE_F32", "float32"},     {"ELEMENT_TYPE_I32", "int32"},
      {"ELEMENT_TYPE_I8", "int8"},         {"ELEMENT_TYPE_U8", "uint8"},
      {"ELEMENT_TYPE_I4", "int4"},         {"ELEMENT_TYPE_U4", "uint4"},
      {"RANGE_SOURCE_UNSPECIFIED", "any"}, {"RANGE_SOURCE_STATIC", "static"},
      {"RANGE_SOURCE_DYNAMIC", "dynamic"}, {"RANGE_SOURCE_WEIGHTS_ONLY", "weights"},
#define QUENCH_CHOICE_VALUE(member, value, name, enumerator, uuid) {#enumerator, name},
#include "services/codegen/options/options.def"
  };
  return words;
}

// One value of a field; `index` of a repeated one, or -1.
std::string ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return index < 0 ? reflection.GetStringReference(message, &field, &scratch)
                       : reflection.GetRepeatedStringReference(message, &field, index, &scratch);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::string name = reflection.GetEnum(message, &field)->name();
      const auto word = Words().find(name);
      return word == Words().end() ? name : word->second;
    }
    default:
      QUENCH_CHECK(false);  // no row of kFields has a field of another type
      return "";
  }
}

class Reader {
 public:
  Reader(std::string file, FileReader reader) : file_(std::move(file)), reader_(reader) {}

  // `path` leads to the message, in terms of the whole one; `lines` are of the message, null if not known.
  void Read(const Message& message, const FieldLines* lines, const std::string& path) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      const std::string at = path.empty() ? field->name() : path + "." + field->name();
      const std::string where = Where(lines, *field, at);
      const auto known = Fields().find(at);
      if (known != Fields().end()) {
        Take(known->second, message, *field, where);
        if (known->second.form != Form::kPresent) continue;
      }
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        ReadInner(message, *field, lines, at, where);
      } else {
        problems_.Add(InvalidArgument("{} has no option in this command", where));
      }
    }
  }

  absl::StatusOr<OptionsFile> Finish() {
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    return std::move(result_);
  }

 private:
  std::string Where(const FieldLines* lines, const FieldDescriptor& field,
                    const std::string& at) const {
    const int line =
        lines == nullptr ? -1 : lines->GetLocation(&field, field.is_repeated() ? 0 : -1).line;
    return line < 0 ? fmt::format("{}: `{}`", file_, at)
                    : fmt::format("{}:{}: `{}`", file_, line + 1, at);
  }

  void ReadInner(const Message& message, const FieldDescriptor& field, const FieldLines* lines,
                 const std::string& at, const std::string& where) {
    const Reflection& reflection = *message.GetReflection();
    const FieldLines* inner =
        lines == nullptr ? nullptr : lines->GetTreeForNested(&field, field.is_repeated() ? 0 : -1);
    if (!field.is_repeated()) return Read(reflection.GetMessage(message, &field), inner, at);
    const int count = reflection.FieldSize(message, &field);
    if (count > 1) {
      problems_.Add(InvalidArgument(
          "{} is there {} times, this command takes one: `quench workflow create` compiles for all",
          where, count));
    }
    Read(reflection.GetRepeatedMessage(message, &field, 0), inner, at);
  }

  void Take(const FileField& known, const Message& message, const FieldDescriptor& field,
            const std::string& where) {
    if (known.form == Form::kInstead)
      problems_.Add(InvalidArgument("{} has no meaning in a file: {}", where, known.note));
    if (known.form == Form::kInstead || known.form == Form::kName) return;
    if (known.compile_only && reader_ != FileReader::kCompile) return;
    if (known.form == Form::kPresent)
      return Add({std::string(known.option), {std::string(known.note)}, where});
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      if (message.GetReflection()->GetBool(message, &field))
        Add({std::string(known.option), {}, where});
      return;
    }
    if (field.name() == "preprocessing") {
      result_.preprocessing = ValueOf(message, field, -1);
      return;
    }
    std::vector<std::string> values;
    const int count = field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) : 1;
    for (int i = 0; i < count; ++i)
      values.push_back(ValueOf(message, field, field.is_repeated() ? i : -1));
    if (field.name() == "class_names") {
      result_.class_names = std::move(values);
    } else if (known.form == Form::kPassNames) {
      for (std::string name : values) {
        std::replace(name.begin(), name.end(), '_', '-');
        Add({std::string(known.option) + name, {}, where});
      }
    } else if (known.form == Form::kPercent || known.form == Form::kPercentSign) {
      const double percent = 100 * message.GetReflection()->GetDouble(message, &field);
      Add({std::string(known.option),
           {fmt::format("{}{}", percent, known.form == Form::kPercentSign ? "%" : "")},
           where});
    } else if (!values[0].empty()) {
      Add({std::string(known.option), values, where});
    }
  }

  // The last of several fields for one option counts: `quantize` itself, and its activation_type.
  void Add(FileOption option) {
    if (option.name == kQuantize && reader_ == FileReader::kQuantize)
      option.name = "--activation-dtype";
    std::erase_if(result_.options,
                  [&](const FileOption& each) { return each.name == option.name; });
    result_.options.push_back(std::move(option));
  }

  const std::string file_;
  const FileReader reader_;
  OptionsFile result_;
  StatusCollector problems_;
};

// Options one of which the command line may give in place of another of the file.
const std::vector<std::set<std::string>>& Alternatives() {
  static const std::vector<std::set<std::string>> groups = {
      {"--calibration-data", "--calibration", "--calibration-random"}, {"--float16", "--bfloat16"}};
  return groups;
}

bool IsGiven(const std::string& name, const std::set<std::string>& given) {
  if (given.contains(name)) return true;
  return std::ranges::any_of(Alternatives(), [&](const std::set<std::string>& group) {
    return group.contains(name) && std::ranges::any_of(group, [&](const std::string& other) {
             return given.contains(other);
           });
  });
}

// Gives them all, but those that the command line has; returns what is wrong.
std::vector<std::string> GiveAll(const Options& options, const OptionsFile& file) {
  const std::vector<std::string> names = options.Given();
  const std::set<std::string> given(names.begin(), names.end());
  std::vector<std::string> problems;
  for (const FileOption& option : file.options) {
    if (IsGiven(option.name, given)) continue;
    if (!options.Has(option.name)) {
      problems.push_back(
          fmt::format("{}: there is no option {} in this command", option.where, option.name));
      continue;
    }
    const std::string problem = options.Give(option.name, option.values);
    if (!problem.empty()) problems.push_back(fmt::format("{}: {}", option.where, problem));
  }
  return problems;
}

}  // namespace

absl::StatusOr<OptionsFile> ReadOptionsFile(const std::string& path, FileReader reader) {
  gateway::v1::CompileBatch batch;
  FieldLines lines;
  QUENCH_RETURN_IF_ERROR(steps::ReadConfig(path, &batch, &lines));
  Reader fields(path, reader);
  const bool has_lines = !path.ends_with(".json");
  fields.Read(batch, has_lines ? &lines : nullptr, "");
  return fields.Finish();
}

void AddOptionsFile(const Options& options, FileReader reader, std::string& path,
                    const std::function<void(const OptionsFile&)>& take) {
  options.Add("--options", path,
              "Read options from a file: a quench.gateway.v1.CompileBatch without models, as "
              "protobuf text or JSON. Options of the command line replace those of the file",
              "FILE.txtpb|FILE.json");
  options.AddReader([options, reader, &path, take]() -> std::vector<std::string> {
    if (path.empty()) return {};
    const absl::StatusOr<OptionsFile> file = ReadOptionsFile(path, reader);
    if (!file.ok()) return {MessageOf(file.status())};
    take(*file);
    return GiveAll(options, *file);
  });
}

}  // namespace quench::cli
