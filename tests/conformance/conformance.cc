// Runs ONNX's node cases and holds the results against the committed manifest: any case that passes
// or fails other than listed, and any case that is not listed, is an error. `--update` rewrites the
// manifest.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>

#include "common/base/files.h"
#include "common/base/status.h"
#include "tests/conformance/worker.h"

namespace quench::conformance {
namespace {

constexpr int kSkipped = 77;  // what ctest takes for "skipped"

struct Options {
  std::string data = "/usr/share/libonnx-testdata/data/node";
  std::string manifest;
  std::string filter;
  int jobs = 2;
  int limit_seconds = 120;
  bool update = false;
  bool interpreted_only = false;
  double of_largest = 0;
  std::string worker;  // scratch folder; set in children only
};

using Manifest = std::map<std::string, CaseResult>;

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

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  Manifest manifest;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(fmt::format("cannot read `{}`", path));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> fields = SplitTabs(line);
    if (fields.size() != 3)
      return InvalidArgument("`{}`: line `{}` has {} fields, 3 are wanted", path, line,
                             fields.size());
    manifest[fields[0]] = {fields[1], fields[2]};
  }
  return manifest;
}

absl::Status WriteManifest(const std::string& path, const Manifest& manifest) {
  std::string text =
      "# case, interpreted, compiled at levels 0 and 3: `pass` or the reason why not\n";
  for (const auto& [name, result] : manifest)
    text += fmt::format("{}\t{}\t{}\n", name, result.interpreted, result.compiled);
  return WriteFileAtomically(path, text);
}

// Lines for what differs between a column of the manifest and of this run.
void Compare(const std::string& name, const char* column, const std::string& listed,
             const std::string& found, std::vector<std::string>& differences) {
  if ((listed == "pass") == (found == "pass")) return;
  differences.push_back(
      found == "pass" ? fmt::format("{} {}: passes, listed as failing", name, column)
                      : fmt::format("{} {}: fails, listed as passing: {}", name, column, found));
}

int Report(const Options& options, const Manifest& results, const Manifest& listed) {
  std::vector<std::string> differences;
  int interpreted = 0, compiled = 0;
  for (const auto& [name, result] : results) {
    interpreted += result.interpreted == "pass";
    compiled += result.compiled == "pass";
    const auto row = listed.find(name);
    if (row == listed.end()) {
      differences.push_back(name + ": not listed");
      continue;
    }
    Compare(name, "interpreted", row->second.interpreted, result.interpreted, differences);
    if (!options.interpreted_only)
      Compare(name, "compiled", row->second.compiled, result.compiled, differences);
  }
  if (options.filter.empty()) {
    for (const auto& [name, row] : listed) {
      if (!results.contains(name)) differences.push_back(name + ": listed, but not in the data");
    }
  }
  for (const std::string& line : differences) std::cout << line << "\n";
  std::cout << fmt::format(
      "{} cases: {} pass interpreted, {}; {} differ from the manifest\n", results.size(),
      interpreted,
      options.interpreted_only ? "none compiled" : fmt::format("{} pass compiled", compiled),
      differences.size());
  return differences.empty() ? 0 : 1;
}

int Run(const Options& options) {
  if (!std::filesystem::is_directory(options.data)) {
    std::cout << fmt::format("skipped: `{}` is absent (package libonnx-testdata)\n", options.data);
    return kSkipped;
  }
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(options.data)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.find(options.filter) != std::string::npos)
      folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  absl::StatusOr<TempDir> scratch = TempDir::Create();
  if (!scratch.ok()) return std::cerr << MessageOf(scratch.status()) << "\n", 1;
  Manifest listed;
  if (!options.manifest.empty()) {
    absl::StatusOr<Manifest> read = ReadManifest(options.manifest);
    if (!read.ok() && !options.update) return std::cerr << MessageOf(read.status()) << "\n", 1;
    if (read.ok()) listed = *std::move(read);
  }
  std::vector<std::string> arguments = {"quench_conformance", "--worker", scratch->path().string()};
  if (options.interpreted_only) arguments.push_back("--interpreted-only");
  arguments.insert(arguments.end(), {"--of-largest", fmt::format("{}", options.of_largest)});
  Manifest results;
  RunInWorkers(folders, options.jobs, std::chrono::seconds(options.limit_seconds), arguments,
               [&](size_t index, const CaseResult& result) {
                 results[std::filesystem::path(folders[index]).filename().string()] = result;
                 if (results.size() % 100 == 0)
                   std::cout << results.size() << " of " << folders.size() << std::endl;
               });
  if (!options.update) return Report(options, results, listed);
  for (auto& [name, result] : results) {
    if (options.interpreted_only && listed.contains(name)) result.compiled = listed[name].compiled;
    listed[name] = result;
  }
  if (options.filter.empty()) listed = results;  // cases that are gone leave the manifest
  if (absl::Status status = WriteManifest(options.manifest, listed); !status.ok()) {
    return std::cerr << MessageOf(status) << "\n", 1;
  }
  return Report(options, results, listed);
}

}  // namespace
}  // namespace quench::conformance

int main(int argc, char** argv) {
  quench::conformance::Options options;
  CLI::App app("Runs ONNX's node cases through import, interpreter and native code");
  app.add_option("--data", options.data, "folder with one folder per case");
  app.add_option("--manifest", options.manifest, "expected results (TSV)");
  app.add_option("--filter", options.filter, "only cases whose name contains this");
  app.add_option("--jobs", options.jobs, "worker processes")->check(CLI::Range(1, 64));
  app.add_option("--limit", options.limit_seconds, "seconds a case may take")
      ->check(CLI::Range(1, 3600));
  app.add_flag("--update", options.update, "rewrite the manifest");
  app.add_flag("--interpreted-only", options.interpreted_only, "do not compile");
  app.add_option("--of-largest", options.of_largest,
                 "part of an output's largest magnitude that its elements may be off by")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--worker", options.worker, "")->group("");
  CLI11_PARSE(app, argc, argv);
  if (options.worker.empty()) return quench::conformance::Run(options);
  quench::conformance::CaseOptions cases;
  cases.compile = !options.interpreted_only;
  cases.of_largest = options.of_largest;
  cases.scratch = std::filesystem::path(options.worker) / std::to_string(::getpid());
  return quench::conformance::ServeCases(cases);
}
