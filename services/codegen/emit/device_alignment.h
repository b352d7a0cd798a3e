// Alignment of a kernel's accesses.
#pragma once

namespace llvm {
class Function;
}

namespace quench::codegen {

// Writes at each vector access how far its address is a multiple of powers of two, whatever the
// buffers of `body` are, its pointer arguments from `first` on, which are aligned to
// kDeviceAlignment: GPUs access 16 bytes at once only where that is known. `body` is optimised code.
void AlignAccesses(llvm::Function& body, unsigned first);

}  // namespace quench::codegen
