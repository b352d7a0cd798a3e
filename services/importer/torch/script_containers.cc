// Texts, dicts and lists of TorchScript.
#include <algorithm>

#include "common/base/printable.h"
#include "common/base/status.h"
#include "services/importer/torch/script_prims.h"
#include "services/importer/torch/script_values.h"

namespace quench::importer {

absl::StatusOr<TorchValue> ScriptPrims::Item(const TorchValue& container, const TorchValue& key) {
  if (const auto* dict = As<DictPtr>(container)) {
    for (const auto& [known, value] : (*dict)->items) {
      if (AreEqual(known, key)) return value;
    }
    return InvalidArgument("a dict has no `{}`", Printable(ScriptText(key)));
  }
  const std::optional<int64_t> index = IntOf(key);
  if (!index) return p_.UnknownError("an index of a list");
  if (const auto* text = As<std::string>(container)) {
    const auto size = static_cast<int64_t>(text->size());
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size)
      return InvalidArgument("a text of {} bytes has no byte {}", size, *index);
    return TorchValue(text->substr(static_cast<size_t>(at), 1));
  }
  const std::vector<TorchValue>* items = nullptr;
  if (const auto* list = As<ListPtr>(container)) items = &(*list)->items;
  if (const auto* object = As<std::shared_ptr<TorchObject>>(container)) items = &(*object)->state;
  if (items == nullptr) return InvalidArgument("an index is taken of what has no elements");
  const auto size = static_cast<int64_t>(items->size());
  const int64_t at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size)
    return InvalidArgument("a list of {} elements has no element {}", size, *index);
  return (*items)[static_cast<size_t>(at)];
}

namespace {

absl::Status TooManyItems() {
  return absl::ResourceExhaustedError("a list has more than a million elements");
}

int64_t IntegerAt(const std::vector<TorchValue>& arguments, size_t i, int64_t fallback) {
  return i < arguments.size() ? IntOf(arguments[i]).value_or(fallback) : fallback;
}

std::string Formatted(const std::string& text, const std::vector<TorchValue>& arguments) {
  std::string result;
  size_t next = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "{}" && next < arguments.size()) {
      result += ScriptText(arguments[next++]);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

// `begin`, `end` and `step` behind the list.
TorchValue SliceOf(const std::vector<TorchValue>& items, const std::vector<TorchValue>& arguments) {
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](size_t i, int64_t fallback) {
    if (i >= arguments.size() || IsNone(arguments[i])) return fallback;
    const int64_t at = IntegerAt(arguments, i, fallback);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t step = std::min(IntegerAt(arguments, 3, 1), size + 1);
  std::vector<TorchValue> part;
  for (int64_t i = bound(1, 0); i < bound(2, size) && step > 0; i += step)
    part.push_back(items[static_cast<size_t>(i)]);
  return MakeList(std::move(part));
}

bool ChangesList(const std::string& op) {
  return op == "append" || op == "extend" || op == "insert" || op == "pop" || op == "clear" ||
         op == "_set_item" || op == "add_" || op == "reverse";
}

}  // namespace

absl::StatusOr<Maybe> ScriptPrims::OnText(const std::string& op, const std::string& text,
                                          const Arguments& arguments) {
  if (op == "len") return Maybe(static_cast<int64_t>(text.size()));
  if (op == "format") return Maybe(Formatted(text, arguments));
  if (arguments.size() < 2) return Maybe();
  if (op == "add") return Maybe(text + ScriptText(arguments[1]));
  if (op == "eq") return Maybe(AreEqual(arguments[0], arguments[1]));
  if (op == "ne") return Maybe(!AreEqual(arguments[0], arguments[1]));
  if (op == "__getitem__") return Item(arguments[0], arguments[1]);
  return Maybe();
}

absl::StatusOr<Maybe> ScriptPrims::OnDict(const std::string& op, TorchDict& dict,
                                          const Arguments& arguments) {
  auto& items = dict.items;
  if (op == "len") return Maybe(static_cast<int64_t>(items.size()));
  if (op == "__getitem__" && arguments.size() > 1) return Item(arguments[0], arguments[1]);
  const auto found =
      arguments.size() < 2
          ? items.end()
          : std::find_if(
                items.begin(), items.end(),
                [&](const auto& item) { return AreEqual(item.first, arguments[1]); });
  if (op == "__contains__") return Maybe(found != items.end());
  if (op == "get")
    return found != items.end() ? Maybe(found->second)
                                : Maybe(arguments.size() > 2 ? arguments[2] : TorchValue());
  if (op == "_set_item" && arguments.size() > 2) {
    QUENCH_RETURN_IF_ERROR(MayChange("dict"));
    QUENCH_RETURN_IF_ERROR(CheckNesting(arguments[0], arguments[2]));
    if (found != items.end()) {
      found->second = arguments[2];
    } else {
      items.emplace_back(arguments[1], arguments[2]);
    }
    return Maybe(TorchValue());
  }
  std::vector<TorchValue> all;
  for (const auto& [key, value] : items) {
    if (op == "keys") all.push_back(key);
    if (op == "values") all.push_back(value);
    if (op == "items") all.push_back(MakeList({key, value}, true));
  }
  if (op == "keys" || op == "values" || op == "items") return Maybe(MakeList(std::move(all)));
  if (op == "copy") return Maybe(std::make_shared<TorchDict>(dict));
  return Maybe();
}

// Numbers of a list as one: `any`, `all`, `max`, `min`, `sum`.
absl::StatusOr<Maybe> ScriptPrims::Reduced(const std::string& op,
                                           const std::vector<TorchValue>& items) {
  const bool flags = op == "any" || op == "all";
  const std::string step = op == "any"   ? "__or__"
                           : op == "all" ? "__and__"
                           : op == "sum" ? "add"
                                         : op;
  TorchValue result = op == "all";
  if (!flags) result = items.empty() ? TorchValue(int64_t{0}) : items[0];
  for (size_t i = flags ? 0 : 1; i < items.size(); ++i) {
    TorchValue item = items[i];
    if (flags) {
      QUENCH_ASSIGN_OR_RETURN(item, ToNumber(item, RuntimeNumber::Kind::kBool));
    }
    QUENCH_ASSIGN_OR_RETURN(const Maybe next, Arithmetic(step, op, {result, item}));
    if (!next) return Maybe();
    result = *next;
  }
  return Maybe(result);
}

absl::StatusOr<Maybe> ScriptPrims::OnList(const std::string& op, TorchList& list,
                                          const Arguments& arguments) {
  const std::vector<TorchValue>& items = list.items;
  if (items.size() > kMaxScriptItems) return TooManyItems();
  const auto* other = arguments.size() > 1 ? As<ListPtr>(arguments[1]) : nullptr;
  if (op == "len") return Maybe(static_cast<int64_t>(items.size()));
  if (op == "__getitem__" && arguments.size() > 1) return Item(arguments[0], arguments[1]);
  if (op == "list" || op == "copy") return Maybe(MakeList(items));
  if (op == "eq" && other != nullptr) return Maybe(AreEqual(arguments[0], arguments[1]));
  if (op == "ne" && other != nullptr) return Maybe(!AreEqual(arguments[0], arguments[1]));
  if (op == "add" && other != nullptr) {
    std::vector<TorchValue> both = items;
    both.insert(both.end(), (*other)->items.begin(), (*other)->items.end());
    return Maybe(MakeList(std::move(both)));
  }
  if (op == "mul" && arguments.size() > 1) {
    const int64_t times = items.empty() ? 0 : IntegerAt(arguments, 1, 0);
    if (times > 0 && static_cast<size_t>(times) > kMaxScriptItems / items.size())
      return TooManyItems();
    std::vector<TorchValue> all;
    for (int64_t i = 0; i < times; ++i) all.insert(all.end(), items.begin(), items.end());
    return Maybe(MakeList(std::move(all)));
  }
  if (op == "slice") return Maybe(SliceOf(items, arguments));
  if (op == "__contains__" && arguments.size() > 1)
    return Maybe(std::any_of(items.begin(), items.end(),
                             [&](const TorchValue& item) { return AreEqual(item, arguments[1]); }));
  if (((op == "any" || op == "all") && arguments.size() == 1) || op == "max" || op == "min" ||
      op == "sum")
    return Reduced(op, items);
  if (ChangesList(op)) return Changed(op, list, arguments);
  return Maybe();
}

absl::StatusOr<Maybe> ScriptPrims::Changed(const std::string& op, TorchList& list,
                                           const Arguments& arguments) {
  QUENCH_RETURN_IF_ERROR(MayChange("list"));
  std::vector<TorchValue>& items = list.items;
  const auto* other = arguments.size() > 1 ? As<ListPtr>(arguments[1]) : nullptr;
  const bool extends = (op == "extend" || op == "add_") && other != nullptr;
  const Arguments parts =
      extends ? (*other)->items : Arguments(arguments.begin() + 1, arguments.end());
  for (const TorchValue& part : parts) QUENCH_RETURN_IF_ERROR(CheckNesting(arguments[0], part));
  if (op == "append" && arguments.size() > 1) items.push_back(arguments[1]);
  if (extends) items.insert(items.end(), parts.begin(), parts.end());
  if (op == "clear") items.clear();
  if (op == "reverse") std::reverse(items.begin(), items.end());
  const auto size = static_cast<int64_t>(items.size());
  int64_t at = IntegerAt(arguments, 1, -1);
  if (at < 0) at += size;
  if (op == "insert" && arguments.size() > 2)
    items.insert(items.begin() + std::clamp<int64_t>(at, 0, size), arguments[2]);
  if (op == "_set_item" || op == "pop") {
    if (at < 0 || at >= size)
      return InvalidArgument("a list of {} elements has no element {}", size,
                             IntegerAt(arguments, 1, -1));
    if (op == "pop") {
      TorchValue popped = items[static_cast<size_t>(at)];
      items.erase(items.begin() + at);
      return Maybe(popped);
    }
    if (arguments.size() < 3) return InvalidArgument("an element of a list is set to nothing");
    items[static_cast<size_t>(at)] = arguments[2];
  }
  return Maybe(arguments[0]);
}

absl::StatusOr<Maybe> ScriptPrims::OnContainer(const std::string& op, const Arguments& arguments) {
  if (arguments.empty()) return op == "dict" ? Maybe(std::make_shared<TorchDict>()) : Maybe();
  if (const auto* text = As<std::string>(arguments[0])) return OnText(op, *text, arguments);
  if (const auto* dict = As<DictPtr>(arguments[0])) return OnDict(op, **dict, arguments);
  if (const auto* list = As<ListPtr>(arguments[0])) return OnList(op, **list, arguments);
  return Maybe();
}

}  // namespace quench::importer
