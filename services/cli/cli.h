// The `quench` program.
#pragma once

namespace quench::cli {

// Parses, runs and maps the outcome to an exit code: 0 ok, 1 failed, 2 usage, 3 unavailable, 4 not
// permitted, 130 cancelled. Errors go to stderr as "quench: error: ...".
int Main(int argc, char** argv);

}  // namespace quench::cli
