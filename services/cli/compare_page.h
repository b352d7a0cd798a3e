// Measurements of `quench compare` as an HTML page.
#pragma once

#include <string>

#include "services/analyser/compare.h"

namespace quench::cli {

// The two sides compared, as the command line names them.
struct Compared {
  std::string reference;
  std::string other;
  std::string samples;  // where they are from
};

// A whole HTML page that needs nothing else: no scripts, no other files, light and dark. A bar of
// SQNR for each layer in order of execution, the worst ones marked and in a table of their own.
std::string ComparePage(const Compared& compared, const analyser::CompareReport& report);

}  // namespace quench::cli
