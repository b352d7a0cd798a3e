// Small graphs, compiled and run, against the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "common/ir/graph.h"
#include "common/runner/inputs.h"
#include "common/runner/runner.h"
#include "services/codegen/codegen.h"
#include "services/codegen/plan/variants.h"

namespace quench::codegen {

// Infers the types of a graph that a test has put together.
void Infer(Graph& graph);
// A tensor of small deterministic values.
Tensor Values(std::vector<int64_t> dims, uint64_t seed = 1);
// Appends a node with one output and returns that.
ValueId Node1(Graph& graph, const std::string& op, std::vector<ValueId> inputs,
              std::map<std::string, Attribute> attributes = {});

// A compiled graph in a folder of its own.
struct Compiled {
  TempDir folder;
  CompileReport report;
  std::filesystem::path library() const { return folder.path() / "model.so"; }
  std::filesystem::path header() const { return folder.path() / "model.h"; }
};
absl::StatusOr<Compiled> CompileGraph(const Graph& graph, CompileOptions options = {});
// The kernels that it would be compiled to, for the widest variant of the target: nothing is emitted.
absl::StatusOr<std::vector<KernelReport>> PlannedKernels(const Graph& graph,
                                                         const CompileOptions& options);

// Compiles at every level and compares each output with ops::Evaluate on random inputs (symbolic
// dims at `sizes`).
void ExpectSameAsInterpreter(const Graph& graph, const std::map<std::string, int64_t>& sizes = {},
                             double tolerance = 1e-5);
// The same on given inputs, at one level.
void ExpectSame(const Graph& graph, const std::vector<Tensor>& inputs, int level,
                double tolerance = 1e-5);

// Runs the library in sessions of one thread and of three, twice in most (the second run sees a dirty
// arena), and hands the outputs of each run to `check`, with words for which run it was. Memory that a
// session takes is filled with NaNs (bytes 0xFF) or with bytes 0xA5 before; all runs have the same bits.
void ForEachRun(
    const Compiled& compiled, const std::vector<Tensor>& inputs,
    const std::function<void(const std::vector<Tensor>& outputs, const std::string& where)>& check);

// Names of targets that this CPU runs.
std::vector<std::string> RunnableTargets();
// Compiles for a sample of them (sample.h) at level 3, for `host` at `levels` too, and hands over each
// build, with words for which it is.
void ForEachBuild(const Graph& graph, const std::vector<int>& levels,
                  const std::function<void(const Compiled& compiled, int level,
                                           const std::string& where)>& check);

// The files that libquench_rt is made of, each behind a space.
std::string RuntimeSources();

}  // namespace quench::codegen
