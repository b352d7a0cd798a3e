#include "common/steps/read_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <regex>
#include <set>
#include <vector>

#include "common/base/files.h"
#include "common/base/near_names.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Types of messages that may lie in one of `type`, itself among them.
void AddTypes(const Descriptor* type, std::set<const Descriptor*>& types) {
  if (!types.insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i)
    if (const Descriptor* inner = type->field(i)->message_type()) AddTypes(inner, types);
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

// Messages of the parser, in words that name the field and similar names.
class Wording {
 public:
  explicit Wording(const Descriptor* type) { AddTypes(type, types_); }

  // `before`: the text of the line before the mistake.
  std::string Of(const std::string& message, const std::string& before) const {
    static const std::regex field(R"re(Message type "([^"]+)" has no field named "([^"]+)".*)re");
    static const std::regex value(
        R"re(Unknown enumeration value of "([^"]+)" for field "([^"]+)".*)re");
    static const std::regex begins(R"((\w+)\s*:\s*\[?[^:]*$)");
    std::smatch found;
    if (std::regex_match(message, found, field)) return UnknownField(found[1], found[2]);
    if (std::regex_match(message, found, value)) return UnknownValue(found[2], found[1]);
    if (std::regex_search(before, found, begins))
      return fmt::format("`{}`: {}", found[1].str(), message);
    return message;
  }
  // The same of JSON, whose parser says "(path) name: Cannot find field." and "(path.name): invalid value
  // \"x\" for type y"; `name` becomes that of the field.
  std::string OfJson(const std::string& message, std::string* name) const {
    static const std::regex field(R"((?:.*\W)?(\w+): Cannot find field\.)");
    static const std::regex value(R"re(\(.*?(\w+)\): invalid value "([^"]+)" for type .*)re");
    std::smatch found;
    if (std::regex_match(message, found, field)) {
      *name = found[1];
      std::vector<std::string> known;
      for (const Descriptor* type : types_) {
        const std::vector<std::string> names = FieldNames(*type);
        known.insert(known.end(), names.begin(), names.end());
      }
      return message.substr(0, message.size() - 1) + DidYouMean(*name, known);
    }
    if (!std::regex_match(message, found, value)) return message;
    *name = found[1];
    return message + Alternatives(*name, found[2]);
  }

 private:
  std::string UnknownField(const std::string& type, const std::string& name) const {
    const auto found = std::ranges::find_if(
        types_, [&](const Descriptor* each) { return each->full_name() == type; });
    return fmt::format("{} has no field `{}`{}", type, name,
                       found == types_.end() ? "" : DidYouMean(name, FieldNames(**found)));
  }
  std::string UnknownValue(const std::string& name, const std::string& value) const {
    return fmt::format("`{}` is not a value of `{}`{}", value, name, Alternatives(name, value));
  }
  // Values of fields of this name that are enums: those that `value` may have meant, else all of a few.
  std::string Alternatives(const std::string& name, const std::string& value) const {
    constexpr size_t kFew = 8;
    std::vector<std::string> known;
    for (const Descriptor* type : types_) {
      const FieldDescriptor* field = type->FindFieldByName(name);
      const EnumDescriptor* values = field == nullptr ? nullptr : field->enum_type();
      for (int i = 0; values != nullptr && i < values->value_count(); ++i)
        known.push_back(values->value(i)->name());
    }
    std::string near = DidYouMean(value, known);
    if (!near.empty() || known.empty() || known.size() > kFew) return near;
    return fmt::format("; there are {}", fmt::join(known, ", "));
  }

  std::set<const Descriptor*> types_;
};

// Line `number` of a text, counted from 0.
std::string LineOf(const std::string& text, int number) {
  size_t start = 0;
  for (; number > 0 && start != std::string::npos; --number)
    start = text.find('\n', start) == std::string::npos ? std::string::npos
                                                        : text.find('\n', start) + 1;
  return start == std::string::npos ? "" : text.substr(start, text.find('\n', start) - start);
}

class Mistakes final : public google::protobuf::io::ErrorCollector {
 public:
  Mistakes(std::string file, const std::string& text, const Descriptor* type)
      : file_(std::move(file)), text_(text), wording_(type) {}
  // Line and column count from 0.
  void AddError(int line, int column, const std::string& message) override {
    const std::string before =
        LineOf(text_, line).substr(0, static_cast<size_t>(std::max(column, 0)));
    problems_.Add(
        InvalidArgument("{}:{}:{}: {}", file_, line + 1, column + 1, wording_.Of(message, before)));
  }
  absl::Status Finish() const { return problems_.Finish(); }

 private:
  const std::string file_;
  const std::string& text_;
  const Wording wording_;
  StatusCollector problems_;
};

absl::Status ReadJson(const std::string& file, const std::string& text,
                      google::protobuf::Message* config) {
  const auto status = google::protobuf::util::JsonStringToMessage(text, config);
  if (status.ok()) return absl::OkStatus();
  std::string name;
  const std::string problem =
      Wording(config->GetDescriptor())
          .OfJson(std::string(status.message().data(), status.message().size()), &name);
  const size_t at = name.empty() ? std::string::npos : text.find('"' + name + '"');
  if (at == std::string::npos) return InvalidArgument("{}: {}", file, problem);
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
  return InvalidArgument("{}:{}: {}", file, line, problem);
}

}  // namespace

absl::Status ReadConfig(const std::filesystem::path& path, google::protobuf::Message* config,
                        FieldLines* lines) {
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  if (path.extension() == ".json") return ReadJson(path.string(), text, config);
  if (path.extension() != ".txtpb") {
    return InvalidArgument("{}: configuration is read from .txtpb (protobuf text) or .json files",
                           path.string());
  }
  google::protobuf::TextFormat::Parser parser;
  Mistakes mistakes(path.string(), text, config->GetDescriptor());
  parser.RecordErrorsTo(&mistakes);
  if (lines != nullptr) parser.WriteLocationsTo(lines);
  if (parser.ParseFromString(text, config)) return absl::OkStatus();
  return mistakes.Finish();
}

}  // namespace quench::steps
