// What `quench compare` measured, as a page to look at.
#pragma once

#include <string>

#include "services/analyser/compare.h"

namespace quench::cli {

// What was compared, as the command line names it.
struct Compared {
  std::string reference;
  std::string other;
  std::string samples;  // where they are from
};

// A whole HTML page that needs nothing else: no scripts, no other files, light and dark. A bar of
// SQNR for each layer in order of execution, the worst ones marked and in a table of their own.
std::string ComparePage(const Compared& compared, const analyser::CompareReport& report);

}  // namespace quench::cli
