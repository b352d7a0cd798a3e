#include "services/codegen/targets/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <variant>

#include "common/base/near_names.h"
#include "common/base/status.h"

namespace quench::codegen {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = 16 << 10;
constexpr int kMostHosts = 4;     // hosts of hosts
constexpr int kMostCores = 1024;  // threads of a session (quench_rt.h)

using Text = std::string TargetSpec::*;
using List = std::vector<std::string> TargetSpec::*;
using Switch = bool TargetSpec::*;
using Count = int TargetSpec::*;
struct Host {};

struct Key {
  const char* name;
  std::variant<Text, List, Switch, Count, Host> field;
};

// In the order of ToString.
const std::vector<Key>& Keys() {
  static const auto* const kKeys = new std::vector<Key>{
      {"kind", &TargetSpec::kind},
      {"keys", &TargetSpec::keys},
      {"device", &TargetSpec::device},
      {"libs", &TargetSpec::libs},
      {"system-lib", &TargetSpec::system_lib},
      {"mtriple", &TargetSpec::mtriple},
      {"mcpu", &TargetSpec::mcpu},
      {"mattr", &TargetSpec::mattr},
      {"mfloat-abi", &TargetSpec::mfloat_abi},
      {"mabi", &TargetSpec::mabi},
      {"emulate-matrices", &TargetSpec::emulate_matrices},
      {"num-cores", &TargetSpec::num_cores},
      {"arch", &TargetSpec::arch},
      {"model", &TargetSpec::model},
      {"runtime", &TargetSpec::runtime},
      {"host", Host{}},
  };
  return *kKeys;
}

const Key* FindKey(std::string_view name) {
  const auto found =
      std::find_if(Keys().begin(), Keys().end(), [&](const Key& key) { return key.name == name; });
  return found == Keys().end() ? nullptr : &*found;
}

absl::Status UnknownKey(std::string_view name) {
  std::vector<std::string> known;
  for (const Key& key : Keys()) known.emplace_back(key.name);
  const std::string shown(name.substr(0, kShown));
  return InvalidArgument("unknown key `{}`, similar ones are `{}`", shown,
                         fmt::join(NearNames(shown, known, 3), "`, `"));
}

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (!part.empty()) parts.emplace_back(part);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

std::optional<bool> SwitchOf(std::string_view text) {
  if (text == "1" || text == "true" || text == "True") return true;
  if (text == "0" || text == "false" || text == "False") return false;
  return std::nullopt;
}

std::optional<int> CountOf(std::string_view text) {
  if (text.empty() || text.size() > 4) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value >= 1 && value <= kMostCores ? std::optional(value) : std::nullopt;
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

class Parser {
 public:
  explicit Parser(int depth) : depth_(depth) {}

  absl::StatusOr<TargetSpec> Parse(std::string_view text) {
    if (text.size() > kMostBytes)
      return InvalidArgument("it has {} bytes, at most {} are taken", text.size(), kMostBytes);
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return InvalidArgument("it is empty");
    text = text.substr(begin);
    if (text[0] == '{') {
      ParseJson(text);
    } else {
      ParseString(text);
    }
    CheckWhole();
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    return std::move(spec_);
  }

  absl::StatusOr<TargetSpec> ParseObject(const json& object) {
    TakeObject(object);
    CheckWhole();
    QUENCH_RETURN_IF_ERROR(problems_.Finish());
    return std::move(spec_);
  }

 private:
  void ParseJson(std::string_view text) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) {
      problems_.Add(InvalidArgument("it begins with `{{` and is not JSON"));
    } else {
      TakeObject(object);
    }
  }

  void TakeObject(const json& object) {
    for (const auto& [name, value] : object.items()) {
      if (const Key* key = FindKey(name)) {
        TakeJson(*key, value);
      } else {
        problems_.Add(UnknownKey(name));
      }
    }
  }

  void TakeJson(const Key& key, const json& value) {
    if (value.is_null()) return;
    if (value.is_string()) return Take(key, value.get<std::string>());
    if (const Switch* on = std::get_if<Switch>(&key.field)) {
      if (!value.is_boolean() && value != 0 && value != 1) return WrongType(key, "true or false");
      spec_.*(*on) = value.is_boolean() ? value.get<bool>() : value == 1;
    } else if (std::holds_alternative<Count>(key.field)) {
      if (!value.is_number_integer()) return WrongType(key, "a whole number");
      Take(key, value.dump());
    } else if (const List* list = std::get_if<List>(&key.field)) {
      const auto is_text = [](const json& each) { return each.is_string(); };
      if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text))
        return WrongType(key, "a list of strings");
      for (const json& each : value) (spec_.*(*list)).push_back(each.get<std::string>());
    } else if (std::holds_alternative<Host>(key.field)) {
      if (!value.is_object()) return WrongType(key, "an object or a target string");
      TakeHost([&](Parser& parser) { return parser.ParseObject(value); });
    } else {
      WrongType(key, "a string");
    }
  }

  void WrongType(const Key& key, std::string_view wanted) {
    problems_.Add(InvalidArgument("`{}` must be {}", key.name, wanted));
  }

  // kind -key=value -key value -switch, values in quotes where they have spaces.
  void ParseString(std::string_view text) {
    const absl::StatusOr<std::vector<std::string>> words = Words(text);
    if (!words.ok()) return problems_.Add(words.status());
    spec_.kind = words->front();
    for (size_t i = 1; i < words->size(); ++i) {
      std::string_view word = (*words)[i];
      if (word.size() < 2 || word[0] != '-') {
        problems_.Add(InvalidArgument("`{}` is not an option, options are `-key=value`",
                                      word.substr(0, kShown)));
        continue;
      }
      word.remove_prefix(word[1] == '-' ? 2 : 1);
      const size_t equals = word.find('=');
      const std::string_view name = word.substr(0, equals);
      const Key* key = FindKey(name);
      if (key == nullptr || name == "kind") {
        problems_.Add(UnknownKey(name));
      } else if (equals != std::string_view::npos) {
        Take(*key, word.substr(equals + 1));
      } else if (const Switch* field = std::get_if<Switch>(&key->field)) {
        spec_.*(*field) = true;
      } else if (i + 1 < words->size()) {
        Take(*key, (*words)[++i]);
      } else {
        problems_.Add(InvalidArgument("`-{}` has no value", name));
      }
    }
  }

  static absl::StatusOr<std::vector<std::string>> Words(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    bool inside = false;
    char quote = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quote != 0 && c == '\\' && i + 1 < text.size()) {
        word += text[++i];
      } else if (quote != 0) {
        if (c != quote) word += c;
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
        inside = true;
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        if (inside) words.push_back(std::move(word));
        word.clear();
        inside = false;
      } else {
        word += c;
        inside = true;
      }
    }
    if (quote != 0) return InvalidArgument("a quote is not closed");
    if (inside) words.push_back(std::move(word));
    return words;
  }

  void Take(const Key& key, std::string_view value) {
    if (!IsPrintable(value)) return WrongType(key, "printable ASCII");
    if (const Text* text = std::get_if<Text>(&key.field)) {
      if (value.empty())
        return problems_.Add(
            InvalidArgument("`{}` is empty: leave it out, or give a value", key.name));
      spec_.*(*text) = value;
    } else if (const List* list = std::get_if<List>(&key.field)) {
      spec_.*(*list) = SplitList(value);
    } else if (const Switch* field = std::get_if<Switch>(&key.field)) {
      const std::optional<bool> on = SwitchOf(value);
      if (!on) return WrongType(key, "true or false");
      spec_.*(*field) = *on;
    } else if (const Count* count = std::get_if<Count>(&key.field)) {
      const std::optional<int> number = CountOf(value);
      if (!number) return WrongType(key, fmt::format("a whole number from 1 to {}", kMostCores));
      spec_.*(*count) = *number;
    } else {
      TakeHost([&](Parser& parser) { return parser.Parse(value); });
    }
  }

  template <typename ParseWith>
  void TakeHost(const ParseWith& parse) {
    if (depth_ == kMostHosts)
      return problems_.Add(InvalidArgument("more than {} hosts lie in one another", kMostHosts));
    Parser parser(depth_ + 1);
    absl::StatusOr<TargetSpec> host = parse(parser);
    if (!host.ok()) return problems_.Add(Annotate(host.status(), "`host`"));
    spec_.host = std::make_shared<const TargetSpec>(*std::move(host));
  }

  void CheckWhole() {
    if (spec_.kind.empty()) problems_.Add(InvalidArgument("`kind` is missing, `llvm` is one"));
    for (const std::string& feature : spec_.mattr) {
      if (feature.size() < 2 || (feature[0] != '+' && feature[0] != '-')) {
        problems_.Add(InvalidArgument("`mattr` has `{}`, features are `+name` or `-name`",
                                      feature.substr(0, kShown)));
      }
    }
  }

  const int depth_;
  TargetSpec spec_;
  StatusCollector problems_;
};

// With quotes where a word would end, or not begin.
std::string Quoted(const std::string& value) {
  if (value.find_first_of(" '\"") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

absl::StatusOr<TargetSpec> ParseTargetSpec(std::string_view text) { return Parser(0).Parse(text); }

bool IsTargetSpec(std::string_view text) {
  static const std::set<std::string_view> kKinds = {"llvm", "cuda",    "opencl", "metal", "vulkan",
                                                    "rocm", "hexagon", "c",      "nvptx", "webgpu"};
  return text.find_first_of(" \t\n{") != std::string_view::npos || kKinds.count(text) != 0;
}

std::string ToString(const TargetSpec& spec) {
  std::string text = spec.kind;
  for (const Key& key : Keys()) {
    std::string value;
    if (const Text* field = std::get_if<Text>(&key.field)) {
      value = spec.*(*field);
    } else if (const List* list = std::get_if<List>(&key.field)) {
      value = fmt::format("{}", fmt::join(spec.*(*list), ","));
    } else if (const Count* count = std::get_if<Count>(&key.field)) {
      if (spec.*(*count) != 0) value = std::to_string(spec.*(*count));
    } else if (const Switch* on = std::get_if<Switch>(&key.field)) {
      if (spec.*(*on)) text += fmt::format(" -{}", key.name);
    } else if (spec.host != nullptr) {
      value = ToString(*spec.host);
    }
    if (!value.empty() && std::string_view(key.name) != "kind")
      text += fmt::format(" -{}={}", key.name, Quoted(value));
  }
  return text;
}

}  // namespace quench::codegen
