// A function with a stack of its own, which can stop in the middle and go on later: a thread of a
// kernel.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>

#include "common/runtime/device/emulated/memory.h"

namespace quench::emulated {

// It belongs to the thread that resumes it. One that is never resumed again costs nothing but its
// stack: nothing on it is destroyed, so that code that must not go on can simply be left.
class Fibre {
 public:
  using Body = void (*)(void* argument);

  Fibre() = default;
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // Resume is going to call body(argument), with an empty stack; whatever it did before is dropped.
  // False if there is no memory for the stack.
  bool Start(Body body, void* argument);
  // Runs it until it yields or leaves.
  void Resume();
  // Within it: returns when it is resumed.
  void Yield();
  // Within it: it must not be resumed again.
  [[noreturn]] void Leave();
  const Span& stack() const { return stack_; }

 private:
  static void Enter(boost::context::detail::transfer_t from);

  Span stack_;  // below it is an inaccessible page
  Body body_ = nullptr;
  void* argument_ = nullptr;
  boost::context::detail::fcontext_t context_ = nullptr;  // where it goes on
  boost::context::detail::fcontext_t caller_ = nullptr;   // where the caller of Resume goes on
  const void* caller_stack_ = nullptr;                    // for AddressSanitizer
  size_t caller_bytes_ = 0;
  void* caller_fake_stack_ = nullptr;
  void* fake_stack_ = nullptr;
};

}  // namespace quench::emulated
