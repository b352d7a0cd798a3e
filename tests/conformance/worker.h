// Cases run in child processes: one that crashes or hangs costs its own result and nothing else.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace quench::conformance {

// The child: reads case folders from stdin, one per line, and answers each with a line on stdout.
// Ends at the end of stdin.
int ServeCases(const CaseOptions& options);

// Runs every folder in one of `jobs` children of this binary, started with `arguments`. Calls
// `done` as results come in, from one thread.
void RunInWorkers(const std::vector<std::string>& folders, int jobs, std::chrono::seconds limit,
                  const std::vector<std::string>& arguments,
                  const std::function<void(size_t index, const CaseResult&)>& done);

}  // namespace quench::conformance
