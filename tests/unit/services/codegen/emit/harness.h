// Compiles loops IR in process, loads it, runs it, and compares it with the interpreter.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/ir/symbols.h"
#include "common/loops/builder.h"
#include "common/loops/interpreter.h"
#include "services/codegen/emit/module.h"

namespace quench::codegen {

using KernelFunction = int32_t (*)(void* const* buffers, int64_t* slots, int64_t begin,
                                   int64_t end);

// Plans a nest for the target and emits it.
absl::StatusOr<EmittedKernel> EmitLoops(ModuleBuilder& builder, const Target& target,
                                        const loops::Function& function, SymbolTable& symbols,
                                        bool vectorise, std::vector<Layout> layouts = {});

// A loaded shared library of emitted kernels.
class Library {
 public:
  // Links what `builder` holds, with the kernels' symbols exported, and loads it.
  static absl::StatusOr<std::unique_ptr<Library>> Load(const Target& target, ModuleBuilder& builder,
                                                       const std::vector<EmittedKernel>& kernels);
  ~Library();
  KernelFunction Find(const std::string& symbol) const;

 private:
  Library(TempDir folder, void* handle) : folder_(std::move(folder)), handle_(handle) {}
  TempDir folder_;
  void* handle_;
};

// The best variant for this machine, and one without fused multiply-add (of the same kind of
// machine).
Target HostTarget();
Target PlainTarget();

// Bytes of a parameter buffer: row-major for the interpreter, laid out for the kernel.
struct Buffer {
  DataType dtype = DataType::kF32;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
};

// Random contents: floats in [low, high] (a few zeros among them), integers over a small range or,
// with `low` > `high`, all bits random.
Buffer RandomBuffer(DataType dtype, std::vector<int64_t> dims, uint32_t seed, double low = -3,
                    double high = 3);

// Elements of `bytes` at index i, as double.
double ElementAt(const Buffer& buffer, int64_t i);

struct CompareOptions {
  Target target = HostTarget();
  bool vectorise = true;
  std::vector<Layout> layouts;
  std::vector<int64_t> slots;
  // Largest accepted |a - b| relative to the largest magnitude of the output; integers always
  // compare exactly.
  double tolerance = 2e-6;
};

// Runs `function` on the given inputs through the interpreter and as machine code (in several
// ranges of tasks, the last one first, outputs dirty before the run) and reports the first
// difference: "" when there is none.
std::string CompareWithInterpreter(const loops::Function& function,
                                   const std::vector<Buffer>& inputs, SymbolTable& symbols,
                                   const CompareOptions& options);
// All combinations of vectorise and the two targets.
std::string CompareEverywhere(const loops::Function& function, const std::vector<Buffer>& inputs,
                              SymbolTable& symbols, std::vector<int64_t> slots = {},
                              double tolerance = 2e-6);

// Undefined symbols of an object file.
std::vector<std::string> UndefinedSymbols(const std::string& object);

}  // namespace quench::codegen
