#include "common/runtime/device/emulated/fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace quench::emulated {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kStackBytes = 256
                                 << 10;  // frames have what the sanitizer puts between variables

// Frames that were left without a return have marked bytes around their variables.
void ForgetFrames(const Span& stack) {
  __asan_unpoison_memory_region(std::bit_cast<void*>(stack.begin), stack.end - stack.begin);
}
void StartSwitch(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void FinishSwitch(void* fake_stack, const void** old_stack, size_t* old_bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, old_stack, old_bytes);
}
#else
constexpr uint64_t kStackBytes = 64 << 10;

void ForgetFrames(const Span& /*stack*/) {}
void StartSwitch(void** /*fake_stack*/, const void* /*stack*/, size_t /*bytes*/) {}
void FinishSwitch(void* /*fake_stack*/, const void** /*old_stack*/, size_t* /*old_bytes*/) {}
#endif

}  // namespace

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

Fibre::~Fibre() {
  if (stack_.end == 0) return;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  munmap(std::bit_cast<void*>(stack_.begin - page), stack_.end - stack_.begin + page);
}

bool Fibre::Start(Body body, void* argument) {
  if (stack_.end == 0) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    void* const pages = mmap(nullptr, kStackBytes + page, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return false;
    const uint64_t begin = std::bit_cast<uint64_t>(pages) + page;
    if (mprotect(std::bit_cast<void*>(begin), kStackBytes, PROT_READ | PROT_WRITE) != 0) {
      munmap(pages, kStackBytes + page);
      return false;
    }
    stack_ = {begin, begin + kStackBytes};
  }
  ForgetFrames(stack_);
  body_ = body;
  argument_ = argument;
  context_ = make_fcontext(std::bit_cast<void*>(stack_.end), kStackBytes, Enter);
  fake_stack_ = nullptr;
  return true;
}

void Fibre::Resume() {
  StartSwitch(&caller_fake_stack_, std::bit_cast<void*>(stack_.begin), kStackBytes);
  const transfer_t from = jump_fcontext(context_, this);
  FinishSwitch(caller_fake_stack_, nullptr, nullptr);
  context_ = from.fctx;
}

void Fibre::Enter(transfer_t from) {
  auto& fibre = *static_cast<Fibre*>(from.data);
  FinishSwitch(nullptr, &fibre.caller_stack_, &fibre.caller_bytes_);
  fibre.caller_ = from.fctx;
  fibre.body_(fibre.argument_);
  fibre.Leave();
}

void Fibre::Yield() {
  StartSwitch(&fake_stack_, caller_stack_, caller_bytes_);
  const transfer_t from = jump_fcontext(caller_, nullptr);
  FinishSwitch(fake_stack_, &caller_stack_, &caller_bytes_);
  caller_ = from.fctx;
}

void Fibre::Leave() {
  StartSwitch(nullptr, caller_stack_, caller_bytes_);
  jump_fcontext(caller_, nullptr);
  __builtin_unreachable();
}

}  // namespace quench::emulated
