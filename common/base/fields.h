// Structs as lists of named members: one declaration, from which text, parsing and traversal follow.
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

// In a struct: the members that are its value, in order.
#define QUENCH_FIELDS(...)                                                \
  static constexpr std::string_view FieldNames() { return #__VA_ARGS__; } \
  auto Fields() { return std::tie(__VA_ARGS__); }                         \
  auto Fields() const { return std::tie(__VA_ARGS__); }

namespace quench {

template <typename T>
concept HasFields = requires { std::remove_const_t<T>::FieldNames(); };

// Calls visit(name, member) for each field of `object`.
template <HasFields T, typename Visit>
void ForEachField(T& object, Visit&& visit) {
  std::string_view names = std::remove_const_t<T>::FieldNames();
  const auto next = [&names] {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 2);
    return name;
  };
  std::apply([&](auto&... field) { (visit(next(), field), ...); }, object.Fields());
}

}  // namespace quench
