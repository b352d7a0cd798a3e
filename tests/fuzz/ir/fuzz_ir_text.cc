// Any text gives a graph or an error, and an accepted graph prints and parses to itself.
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "tests/fuzz/ir/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quench::fuzz::Require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<quench::Graph> graph = quench::ParseGraph(text);
  if (!graph.ok()) return 0;
  if (quench::VerifyGraph(*graph).ok()) {
    quench::Fingerprint(*graph);
    (void)quench::BindSymbols(*graph, {{"n", 8}});
  }
  quench::PrintGraph(*graph, {.types = false, .constants = false});
  const std::string printed = quench::PrintGraph(*graph);
  const absl::StatusOr<quench::Graph> again = quench::ParseGraph(printed);
  Require(again.ok(), printed + "\n" + again.status().ToString());
  const std::string difference = quench::FirstDifference(*graph, *again);
  Require(difference.empty(), printed + "\n" + difference);
  return 0;
}
