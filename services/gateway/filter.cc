#include "services/gateway/filter.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_split.h>
#include <absl/time/time.h>
#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace quench::gateway {
namespace {

using Field = Condition::Field;
using Operator = Condition::Operator;

constexpr char kFields[] =
    "title, labels.KEY, labels, model, target, fleet, request_id, state, priority, create_time or "
    "end_time";

// Words, operators and quoted values, left to right.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) { Skip(); }

  bool done() const { return at_ == text_.size(); }
  std::string rest() const { return text_.substr(at_, 40); }

  std::string Word() {
    const size_t start = at_;
    while (at_ < text_.size() && !absl::ascii_isspace(text_[at_]) &&
           std::string("=!<>:\"").find(text_[at_]) == std::string::npos)
      ++at_;
    return Taken(start);
  }
  std::optional<Operator> Op() {
    static constexpr std::pair<const char*, Operator> kOperators[] = {
        {"!=", Operator::kNotEqual}, {"<=", Operator::kLessEqual}, {">=", Operator::kGreaterEqual},
        {"=", Operator::kEqual},     {"<", Operator::kLess},       {">", Operator::kGreater},
        {":", Operator::kHas}};
    for (const auto& [name, op] : kOperators) {
      if (text_.compare(at_, std::string(name).size(), name) != 0) continue;
      at_ += std::string(name).size();
      Skip();
      return op;
    }
    return std::nullopt;
  }
  // A word up to the next space, or what stands between quotes, in which `\"` is a quote.
  std::optional<std::string> Value() {
    if (done()) return std::nullopt;
    if (text_[at_] != '"') {
      const size_t start = at_;
      while (at_ < text_.size() && !absl::ascii_isspace(text_[at_])) ++at_;
      return Taken(start);
    }
    std::string value;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      value += text_[at_];
    }
    if (done()) return std::nullopt;
    ++at_;
    Skip();
    return value;
  }

 private:
  std::string Taken(size_t start) {
    std::string word = text_.substr(start, at_ - start);
    Skip();
    return word;
  }
  void Skip() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }
  const std::string& text_;
  size_t at_ = 0;
};

std::optional<Condition> FieldOf(const std::string& name) {
  static const std::vector<std::pair<std::string, Field>> kNames = {
      {"title", Field::kTitle},
      {"labels", Field::kLabel},
      {"model", Field::kModel},
      {"target", Field::kTarget},
      {"fleet", Field::kFleet},
      {"request_id", Field::kRequestId},
      {"state", Field::kState},
      {"priority", Field::kPriority},
      {"create_time", Field::kCreateTime},
      {"end_time", Field::kEndTime}};
  Condition condition;
  if (absl::StartsWith(name, "labels.")) {
    condition.field = Field::kLabel;
    condition.key = name.substr(7);
    return condition;
  }
  for (const auto& [each, field] : kNames) {
    if (each != name) continue;
    condition.field = field;
    return condition;
  }
  return std::nullopt;
}

bool IsText(Field field) {
  return field == Field::kTitle || field == Field::kLabel || field == Field::kModel ||
         field == Field::kTarget || field == Field::kFleet || field == Field::kRequestId;
}

// "" if `value` is one of the condition's field.
std::string TakeValue(const std::string& value, Condition* condition) {
  if (IsText(condition->field)) {
    condition->text = value;
    return "";
  }
  if (condition->field == Field::kState) {
    v1::State state{};
    if (!v1::State_Parse("STATE_" + absl::AsciiStrToUpper(value), &state) ||
        state == v1::STATE_UNSPECIFIED) {
      return fmt::format(
          "has the state `{}`, which must be queued, running, succeeded, failed or cancelled",
          value);
    }
    condition->number = state;
    return "";
  }
  if (condition->field == Field::kPriority) {
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, condition->number);
    if (error == std::errc() && stop == end && !value.empty()) return "";
    return fmt::format("compares the priority with `{}`, which is not an integer", value);
  }
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, value, &time, &error) &&
      !absl::ParseTime("%Y-%m-%d", value, &time, &error)) {
    return fmt::format("has the time `{}`, which must be as 2027-01-31 or 2027-01-31T12:00:00Z",
                       value);
  }
  condition->number = absl::ToUnixMicros(time);
  return "";
}

// "" if the field may be compared so.
std::string CheckOperator(const std::string& name, Condition* condition) {
  const bool has = condition->op == Operator::kHas;
  const bool equality = condition->op == Operator::kEqual || condition->op == Operator::kNotEqual;
  if (condition->field == Field::kLabel && condition->key.empty()) {
    return has ? "" : "compares `labels`: write labels.KEY = VALUE, or labels:KEY";
  }
  if (has) return fmt::format("has `:` after `{}`, which is for `labels` only", name);
  if ((IsText(condition->field) || condition->field == Field::kState) && !equality)
    return fmt::format("orders `{}`, which can be compared with = and != only", name);
  return "";
}

bool Like(const std::string& pattern, const std::string& text) {
  const bool open_start = absl::StartsWith(pattern, "*");
  const bool open_end = pattern.size() > 1 && absl::EndsWith(pattern, "*");
  const std::string core =
      pattern.substr(open_start, pattern.size() - static_cast<size_t>(open_start + open_end));
  if (open_start && open_end) return absl::StrContains(text, core);
  if (open_start) return absl::EndsWith(text, core);
  return open_end ? absl::StartsWith(text, core) : text == core;
}

int64_t MicrosecondsOf(const google::protobuf::Timestamp& time) {
  return google::protobuf::util::TimeUtil::TimestampToMicroseconds(time);
}

bool Compare(int64_t value, const Condition& condition) {
  switch (condition.op) {
    case Operator::kEqual:
      return value == condition.number;
    case Operator::kNotEqual:
      return value != condition.number;
    case Operator::kLess:
      return value < condition.number;
    case Operator::kLessEqual:
      return value <= condition.number;
    case Operator::kGreater:
      return value > condition.number;
    case Operator::kGreaterEqual:
      return value >= condition.number;
    case Operator::kHas:
      break;
  }
  return false;
}

bool Equals(const std::string& text, const Condition& condition) {
  return Like(condition.text, text) == (condition.op == Operator::kEqual);
}

// Whether one of them is equal, or none.
bool AnyEquals(const google::protobuf::RepeatedPtrField<std::string>& texts,
               const Condition& condition) {
  const bool any = std::any_of(texts.begin(), texts.end(), [&condition](const std::string& text) {
    return Like(condition.text, text);
  });
  return any == (condition.op == Operator::kEqual);
}

bool Holds(const Condition& condition, const v1::Workflow& workflow) {
  switch (condition.field) {
    case Field::kTitle:
      return Equals(workflow.title(), condition);
    case Field::kLabel: {
      if (condition.op == Operator::kHas) return workflow.labels().contains(condition.text);
      const auto found = workflow.labels().find(condition.key);
      if (found == workflow.labels().end()) return condition.op == Operator::kNotEqual;
      return Equals(found->second, condition);
    }
    case Field::kModel:
      return AnyEquals(workflow.models(), condition);
    case Field::kTarget:
      return AnyEquals(workflow.targets(), condition);
    case Field::kFleet:
      return Equals(workflow.fleet().fleet(), condition);
    case Field::kRequestId:
      return Equals(workflow.request_id(), condition);
    case Field::kState:
      return Compare(workflow.state(), condition);
    case Field::kPriority:
      return Compare(workflow.priority(), condition);
    case Field::kCreateTime:
      return Compare(MicrosecondsOf(workflow.create_time()), condition);
    case Field::kEndTime:
      return workflow.has_end_time() && Compare(MicrosecondsOf(workflow.end_time()), condition);
  }
  return false;
}

}  // namespace

std::vector<Condition> ParseFilter(const std::string& filter, std::string* problem) {
  std::vector<Condition> conditions;
  Scanner scanner(filter);
  while (!scanner.done()) {
    if (!conditions.empty()) {
      const std::string before = scanner.rest();
      if (scanner.Word() != "AND") {
        *problem = fmt::format("has `{}` where `AND` joins conditions", before);
        return {};
      }
    }
    const std::string name = scanner.Word();
    std::optional<Condition> condition = FieldOf(name);
    if (!condition) {
      *problem = fmt::format("has `{}` where a condition begins: it must be {}",
                             name.empty() ? scanner.rest() : name, kFields);
      return {};
    }
    const std::optional<Operator> op = scanner.Op();
    const std::optional<std::string> value = op ? scanner.Value() : std::nullopt;
    if (!value) {
      *problem = fmt::format("has no {} after `{}`",
                             op ? "value (one with spaces stands in double quotes)"
                                : "operator (=, !=, <, <=, >, >=, :)",
                             name);
      return {};
    }
    condition->op = *op;
    *problem = CheckOperator(name, &*condition);
    if (problem->empty()) *problem = TakeValue(*value, &*condition);
    if (!problem->empty()) return {};
    conditions.push_back(*std::move(condition));
  }
  return conditions;
}

bool Matches(const std::vector<Condition>& conditions, const v1::Workflow& workflow) {
  for (const Condition& condition : conditions) {
    if (!Holds(condition, workflow)) return false;
  }
  return true;
}

ListOrder ParseOrder(const std::string& order_by, std::string* problem) {
  const std::vector<std::string> words =
      absl::StrSplit(order_by, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  ListOrder order;
  if (words.empty()) return order;
  const bool field = words[0] == "create_time" || words[0] == "end_time";
  const bool direction = words.size() == 1 || words[1] == "asc" || words[1] == "desc";
  if (!field || !direction || words.size() > 2) {
    *problem = fmt::format(
        "is `{}`, must be `create_time` or `end_time`, then `asc`, `desc` or nothing", order_by);
    return order;
  }
  order.by_end = words[0] == "end_time";
  order.ascending = words.size() == 1 || words[1] == "asc";
  return order;
}

}  // namespace quench::gateway
