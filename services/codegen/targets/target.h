// A target is data: triple, CPU, features, widths, registers, tiles, caches. Nothing outside
// targets/ names an ISA.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "services/codegen/targets/core_costs.h"
#include "services/codegen/targets/cpu_features.h"

namespace quench::codegen {

// Registers that hold matrices of up to 16 rows of 16 words of four bytes, and products of them. A
// kind of products that the target lacks is "".
struct MatrixUnit {
  // LLVM's names of instructions that add products to a matrix of sums: of pairs of bf16 and of f16
  // to f32; of four bytes, u8 times i8 and i8 times i8, to i32.
  std::string bfloats, halves, unsigned_bytes, signed_bytes;
  // Likewise, those that take the shapes of all registers (palette 1 of AMX) and give them back, and that clear,
  // load and store one. "": matrices lie in memory and products are plain vector code, so that plans that use them
  // can be run, and compared, on CPUs without such registers.
  std::string configure, release, zero, load, store;
  bool in_registers() const { return !configure.empty(); }
  // Steps of a reduction after which a register should be stored again, whatever it holds: a store that comes
  // much later waits. 0: never.
  int store_within = 0;
  static constexpr int kRegisters = 8;
  static constexpr int kRows = 16, kWords = 16;
};

// A GPU that device code is made for.
struct Gpu {
  std::string arch;  // "sm_86"; "emulated": a CPU in its place (common/runtime/device/emulated.h)
  uint64_t features = 0;  // QUENCH_CUDA_*, which the runtime checks
  bool emulated = false;
  std::string driver =
      {};  // CUDA version of the first driver that takes its code; "" for emulated ones
  int64_t busy_threads = 32768;  // that keep it busy: with fewer, each does as little as it can
  bool has_tf32() const { return features >= QUENCH_CUDA_SM_80; }
};

// One set of machine code.
struct Target {
  std::string name;      // "x86-64-v3", "cortex-a76"
  std::string triple;    // in LLVM's normal form
  std::string baseline;  // LLVM's CPU that `features` add to
  std::string features;  // everything else that code may use: "+avx2,+fma"; the runtime checks each
  std::string cpu;       // whose timing decides the order of instructions, where LLVM knows it
  std::string object_format;  // of its object files, as LLVM calls it: "elf"
  int pointer_bits = 64;
  int vector_bits = 256;  // preferred vector register
  int vector_registers = 16;
  bool fma = true;
  bool divides_words = true;      // integers of 32 bits, in an instruction
  bool soft_float_calls = false;  // floats are passed in integer registers
  bool android = false;           // loaded by Bionic
  bool converts_halves = false;   // between f16 and f32, in instructions
  bool multiply_by_lane = false;  // a multiply-add takes one lane of a vector as its scalar
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  double gflops = 50;  // fp32 peak of one core, for the cost model
  double gbytes = 10;  // memory bandwidth of one core, for the cost model
  CoreCosts costs = CostsOf("");
  // fp32 micro-kernel tile: rows (pixels) x vectors, with rows * vectors accumulators.
  int tile_rows = 6, tile_vectors = 2;
  CpuFeatures required_features;  // the runtime checks them before it picks a variant
  uint32_t machine = 0;           // QUENCH_MACHINE_* of the artifact
  // LLVM's names of instructions on a whole vector register of bytes; "" where there is none. Sums
  // of four products a 32-bit lane: of u8 and i8, of i8 and i8. In pairs: u8 times i8 into
  // saturating i16, i16 times i16 into i32; i8 with the sign of another.
  std::string add_products_u8, add_products_i8;
  bool products_u8_take_words = false;  // add_products_u8 has its bytes in lanes of 32 bits
  std::string add_pairs_of_bytes, add_pairs_of_words, sign_of_bytes;
  // Likewise, sums of two products of bf16 a lane of f32. Denormals may count as 0.
  std::string add_products_bf16;
  // Likewise, bf16 of f32, rounded to nearest even; denormals become 0.
  std::string narrow_to_bf16;
  MatrixUnit matrices;
  bool sums_halves = false;  // a multiply-add of f16, twice as many as of f32 at once
  // Likewise, bytes of a table by their indices. A table of 16 entries, repeated in every 16 bytes
  // of the first operand: by the low four bits of an index, 0 where its top bit is set. A table of
  // 64, in four operands: 0 where an index is not below 64.
  std::string pick_of_16, pick_of_64;
  // Likewise, floats of a table of 16 by the low four bits of i32 indices.
  std::string pick_of_16_floats;
  // The target of device code, for kernels that run on a GPU; null: all code is for the CPU.
  std::shared_ptr<const Target> device;
  std::optional<Gpu> gpu;  // of a target of device code
  // Lanes of the panels of weights that all variants of a library read; 0 where it has one variant.
  int64_t panel_lanes = 0;
  int f32_lanes() const { return vector_bits / 32; }
  // Floating-point operations of a core in a cycle at its peak, in vectors of `lanes`.
  double FlopsPerCycle(int lanes) const { return 2 * costs.multiply_adds * lanes; }
};

}  // namespace quench::codegen
