#pragma once

namespace quench {

// One visitor for std::visit from a lambda for each alternative.
template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace quench
