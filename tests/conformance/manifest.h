// How cases ended, as kinds that are compared and reasons that are not; the committed manifest of
// them, and the reasons that people gave for rows that ought to pass.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

namespace quench::conformance {

enum class Kind : uint8_t {
  kPass,
  kUnsupported,  // refused with UNIMPLEMENTED
  kWrong,        // ran, with other results than expected
  kError,        // any other status
  kCrash,        // the process died
  kTimeout,
};

struct Outcome {
  Kind kind = Kind::kPass;
  std::string reason;  // one line without tabs; empty for kPass

  // By the status's code.
  static Outcome Of(const absl::Status& status);
  static Outcome Of(Kind kind, const std::string& reason);
  // "pass", or "KIND: reason".
  std::string ToString() const;
  static absl::StatusOr<Outcome> Parse(const std::string& text);
};

struct CaseResult {
  Outcome interpreted;
  Outcome compiled;
};

using Manifest = std::map<std::string, CaseResult>;     // by case
using Exclusions = std::map<std::string, std::string>;  // case -> why it does not pass

// Lines of tab-separated fields; empty ones and those that begin with `#` do not count.
absl::StatusOr<Manifest> ReadManifest(const std::string& path);
absl::Status WriteManifest(const std::string& path, const Manifest& manifest);
absl::StatusOr<Exclusions> ReadExclusions(const std::string& path);

struct Comparison {
  bool compiled = true;  // the column of compiled results counts
  bool whole = true;     // all cases of the data were run
};

// A line for each case that is not listed, that ended in another kind than listed, or that is
// listed and absent.
std::vector<std::string> Differences(const Manifest& results, const Manifest& listed,
                                     const Comparison& comparison);
// A line for each case that is neither passed nor unsupported and has no exclusion, and for each
// exclusion without such a case. A crash or a timeout has no excuse.
std::vector<std::string> Unexplained(const Manifest& results, const Exclusions& exclusions,
                                     const Comparison& comparison);

}  // namespace quench::conformance
