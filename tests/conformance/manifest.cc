#include "tests/conformance/manifest.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::conformance {
namespace {

constexpr std::pair<Kind, const char*> kNames[] = {
    {Kind::kPass, "pass"},   {Kind::kUnsupported, "unsupported"},
    {Kind::kWrong, "wrong"}, {Kind::kError, "error"},
    {Kind::kCrash, "crash"}, {Kind::kTimeout, "timeout"}};

const char* NameOf(Kind kind) {
  return std::find_if(std::begin(kNames), std::end(kNames),
                      [&](const auto& row) { return row.first == kind; })
      ->second;
}

std::vector<std::string> SplitTabs(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '\t') {
      fields.emplace_back();
    } else {
      fields.back().push_back(c);
    }
  }
  return fields;
}

absl::StatusOr<std::vector<std::vector<std::string>>> ReadRows(const std::string& path,
                                                               size_t wanted) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(fmt::format("cannot read `{}`", path));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    rows.push_back(SplitTabs(line));
    if (rows.back().size() != wanted) {
      return InvalidArgument("`{}`: line `{}` has {} fields, expected {}", path, line,
                             rows.back().size(), wanted);
    }
  }
  return rows;
}

void Compare(const std::string& name, const char* column, const Outcome& listed,
             const Outcome& found, std::vector<std::string>& lines) {
  if (listed.kind == found.kind) return;
  lines.push_back(fmt::format("{} {}: listed as {}, found {}", name, column, NameOf(listed.kind),
                              found.ToString()));
}

bool NeedsReason(const Outcome& outcome) {
  return outcome.kind != Kind::kPass && outcome.kind != Kind::kUnsupported;
}

}  // namespace

Outcome Outcome::Of(Kind kind, const std::string& reason) {
  constexpr size_t kMaxLength = 160;
  Outcome outcome{kind, reason.substr(0, kMaxLength)};
  if (reason.size() > kMaxLength) outcome.reason += "...";
  for (char& c : outcome.reason) c = c == '\n' || c == '\t' ? ' ' : c;
  return outcome;
}

Outcome Outcome::Of(const absl::Status& status) {
  if (status.ok()) return {};
  return Of(absl::IsUnimplemented(status) ? Kind::kUnsupported : Kind::kError, MessageOf(status));
}

std::string Outcome::ToString() const {
  return kind == Kind::kPass ? NameOf(kind) : fmt::format("{}: {}", NameOf(kind), reason);
}

absl::StatusOr<Outcome> Outcome::Parse(const std::string& text) {
  for (const auto& [kind, name] : kNames) {
    if (kind == Kind::kPass && text == name) return Outcome{};
    const std::string prefix = std::string(name) + ": ";
    if (kind != Kind::kPass && text.starts_with(prefix))
      return Outcome{kind, text.substr(prefix.size())};
  }
  return InvalidArgument("`{}` is neither `pass` nor `KIND: REASON`", text);
}

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  QUENCH_ASSIGN_OR_RETURN(const auto rows, ReadRows(path, 3));
  Manifest manifest;
  for (const std::vector<std::string>& row : rows) {
    CaseResult& result = manifest[row[0]];
    QUENCH_ASSIGN_OR_RETURN(result.interpreted, Outcome::Parse(row[1]));
    QUENCH_ASSIGN_OR_RETURN(result.compiled, Outcome::Parse(row[2]));
  }
  return manifest;
}

absl::Status WriteManifest(const std::string& path, const Manifest& manifest) {
  std::string text =
      "# case, interpreted, compiled at levels 0 and 3: `pass`, or how it ended (unsupported, "
      "wrong,\n"
      "# error, crash, timeout) and what it said. The kind is compared, the words are not.\n";
  for (const auto& [name, result] : manifest) {
    text += fmt::format("{}\t{}\t{}\n", name, result.interpreted.ToString(),
                        result.compiled.ToString());
  }
  return WriteFileAtomically(path, text);
}

absl::StatusOr<Exclusions> ReadExclusions(const std::string& path) {
  QUENCH_ASSIGN_OR_RETURN(const auto rows, ReadRows(path, 2));
  Exclusions exclusions;
  for (const std::vector<std::string>& row : rows) exclusions[row[0]] = row[1];
  return exclusions;
}

std::vector<std::string> Differences(const Manifest& results, const Manifest& listed,
                                     const Comparison& comparison) {
  std::vector<std::string> lines;
  for (const auto& [name, result] : results) {
    const auto row = listed.find(name);
    if (row == listed.end()) {
      lines.push_back(name + ": not listed");
      continue;
    }
    Compare(name, "interpreted", row->second.interpreted, result.interpreted, lines);
    if (comparison.compiled)
      Compare(name, "compiled", row->second.compiled, result.compiled, lines);
  }
  if (!comparison.whole) return lines;
  for (const auto& [name, row] : listed) {
    if (!results.contains(name)) lines.push_back(name + ": listed, but not in the data");
  }
  return lines;
}

std::vector<std::string> Unexplained(const Manifest& results, const Exclusions& exclusions,
                                     const Comparison& comparison) {
  std::vector<std::string> lines;
  for (const auto& [name, result] : results) {
    bool needed = false;
    for (const Outcome* outcome : {&result.interpreted, &result.compiled}) {
      if (!NeedsReason(*outcome) || (outcome == &result.compiled && !comparison.compiled)) continue;
      needed = true;
      const bool fatal = outcome->kind == Kind::kCrash || outcome->kind == Kind::kTimeout;
      if (!fatal && exclusions.contains(name)) continue;
      lines.push_back(fmt::format("{}: {}, without an exclusion{}", name, outcome->ToString(),
                                  fatal ? "; there is none for this kind" : ""));
    }
    if (!needed && exclusions.contains(name))
      lines.push_back(name + ": excluded, though it passes or is unsupported");
  }
  if (!comparison.whole) return lines;
  for (const auto& [name, reason] : exclusions) {
    if (!results.contains(name)) lines.push_back(name + ": excluded, but not in the data");
  }
  return lines;
}

}  // namespace quench::conformance
