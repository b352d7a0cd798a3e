// Any bytes give a legal graph or an error, and an accepted graph survives the wire and the text.
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ir/wire/wire.h"
#include "tests/fuzz/ir/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using quench::fuzz::Require;
  quench::fuzz::EmptyStore store;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<quench::Graph> graph = quench::ParseModule(bytes, store);
  if (!graph.ok()) return 0;
  Require(quench::VerifyGraph(*graph).ok(), "an illegal graph was accepted");
  const std::string fingerprint = quench::Fingerprint(*graph);
  const absl::StatusOr<std::string> written = quench::SerializeModule(*graph, store);
  Require(written.ok(), written.status().ToString());
  const absl::StatusOr<quench::Graph> again = quench::ParseModule(*written, store);
  Require(again.ok(), again.status().ToString());
  const std::string difference = quench::FirstDifference(*graph, *again);
  Require(difference.empty(), difference);
  Require(quench::Fingerprint(*again) == fingerprint, "the fingerprint changed");
  quench::PrintGraph(*graph);
  return 0;
}
