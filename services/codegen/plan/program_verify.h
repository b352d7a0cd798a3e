// The check that a program is legal.
#pragma once

#include <absl/status/status.h>

#include "services/codegen/plan/program.h"

namespace quench::codegen {

// Checks that steps name existing buffers, storages and weights; that buffers lie within storages; that
// storages of the arena are used within their lives; that a call's plan has as many tasks as it runs; and
// that two storages that are live at once do not overlap at typical sizes, once placed. Reports all
// defects at once, as INTERNAL, because programs are our own.
absl::Status VerifyProgram(const Program& program, size_t weight_entries);

}  // namespace quench::codegen
