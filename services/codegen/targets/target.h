// A target is data: triple, CPU, features, widths, registers, tiles, caches. Nothing outside
// targets/ names an ISA.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/codegen/targets/host_cpu.h"

namespace quench::codegen {

struct Target {
  std::string name;  // "x86-64-v3"
  std::string triple;
  std::string cpu;       // LLVM's name
  std::string features;  // LLVM's feature string: "+avx2,+fma"
  std::string linker_emulation;
  int pointer_bits = 64;
  int vector_bits = 256;  // preferred vector register
  int vector_registers = 16;
  bool fma = true;
  bool converts_halves = false;   // between f16 and f32, in instructions
  bool multiply_by_lane = false;  // a multiply-add takes one lane of a vector as its scalar
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  double gflops = 50;  // fp32 peak of one core, for the cost model
  double gbytes = 10;  // memory bandwidth of one core, for the cost model
  // fp32 micro-kernel tile: rows (pixels) x vectors, with rows * vectors accumulators.
  int tile_rows = 6, tile_vectors = 2;
  uint64_t required_features = 0;  // QUENCH_CPU_* bits the runtime checks before it picks a variant
  uint32_t machine = 0;            // QUENCH_MACHINE_* of the artifact
  // How a relocatable object of this machine is written, and where its weights go (far from code
  // where that matters).
  uint16_t elf_machine = 0;
  uint32_t elf_flags = 0;
  std::string weight_section;
  uint64_t weight_section_flags = 0;
  // LLVM's names of instructions on a whole vector register of bytes; "" where there is none. Sums of four products a
  // 32-bit lane: of u8 and i8, of i8 and i8. In pairs: u8 times i8 into saturating i16, i16 times i16 into i32; i8 with
  // the sign of another.
  std::string add_products_u8, add_products_i8;
  std::string add_pairs_of_bytes, add_pairs_of_words, sign_of_bytes;
  // Likewise, bytes of a table by their indices. Of 16 entries, which every 16 bytes of the first operand hold: by the
  // low four bits of an index, 0 where its top bit is set. Of 64, in four operands: 0 where an index is not below 64.
  std::string pick_of_16, pick_of_64;
  int f32_lanes() const { return vector_bits / 32; }
};

// The variants that a --target name stands for, baseline first. Unknown names are INVALID_ARGUMENT
// with near names. "host" is resolved to what `host` describes; absent: this machine.
absl::StatusOr<std::vector<Target>> ResolveTarget(const std::string& name,
                                                  const std::optional<HostCpu>& host = {});

// A name --target takes, in the order of targets.def, "host" first.
struct TargetName {
  std::string name;
  std::string description;
};
std::vector<TargetName> TargetNames();

}  // namespace quench::codegen
