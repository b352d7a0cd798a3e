// The CPU that target `host` stands for.
#pragma once

#include <string>
#include <vector>

namespace quench::codegen {

// As its program sees it.
struct HostCpu {
  std::string machine;                // `x86_64`, `aarch64`, `armv7`
  std::vector<std::string> features;  // what it reports, sorted: `avx2`
};
// Of this machine; `machine` is empty where Quench compiles for none like it.
HostCpu ThisCpu();

}  // namespace quench::codegen
