// architectures.def and features.def, read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "services/codegen/targets/cpu_features.h"

namespace quench::codegen {

struct Architecture {
  const char* name;       // in requests: "x86_64"
  const char* llvm_name;  // what LLVM calls it
  uint32_t machine;       // QUENCH_MACHINE_*
  const char* triple;
  const char* baseline;          // code is based on this CPU of LLVM's
  const char* default_cpu;       // where no CPU is named
  const char* default_features;  // and these, joined by commas
  const char* needed;            // the floor, joined by commas
  int pointer_bits;
};
std::span<const Architecture> Architectures();
const Architecture* FindArchitecture(uint32_t machine);

struct Feature {
  CpuFeatures bit;
  const char* llvm_name;
  bool (*has)(uint32_t machine);  // whether that architecture can have it
};
std::span<const Feature> Features();

}  // namespace quench::codegen
