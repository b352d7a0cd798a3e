// Runs ONNX's node cases and holds the results against the committed manifest: any case that ends in
// another kind than listed, and any case that is not listed, is an error, and so is one that neither
// passes nor is unsupported without a reason in the exclusions. `--update` rewrites the manifest.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "tests/conformance/worker.h"

namespace quench::conformance {
namespace {

constexpr int kSkipped = 77;  // what ctest takes for "skipped"

struct Options {
  std::string data = "/usr/share/libonnx-testdata/data/node";
  std::string manifest;
  std::string exclusions;
  std::string filter;
  int jobs = 2;
  int limit_seconds = 120;
  bool update = false;
  bool interpreted_only = false;
  double of_largest = 0;
  std::string worker;  // scratch folder; set in children only
};

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

int Report(const Options& options, const Manifest& results, const Manifest& listed,
           const Exclusions& exclusions) {
  const Comparison comparison{!options.interpreted_only, options.filter.empty()};
  const std::vector<std::string> differences = Differences(results, listed, comparison);
  std::vector<std::string> unexplained;
  if (!options.exclusions.empty()) unexplained = Unexplained(results, exclusions, comparison);
  int interpreted = 0, compiled = 0;
  for (const auto& [name, result] : results) {
    interpreted += result.interpreted.kind == Kind::kPass;
    compiled += result.compiled.kind == Kind::kPass;
  }
  for (const std::string& line : differences) std::cout << line << "\n";
  for (const std::string& line : unexplained) std::cout << line << "\n";
  std::cout << fmt::format(
      "{} cases: {} pass interpreted, {}; {} differ from the manifest, {} lack an explanation\n",
      results.size(), interpreted,
      options.interpreted_only ? "none compiled" : fmt::format("{} pass compiled", compiled),
      differences.size(), unexplained.size());
  return differences.empty() && unexplained.empty() ? 0 : 1;
}

int Run(const Options& options) {
  if (!std::filesystem::is_directory(options.data)) {
    std::cout << fmt::format("skipped: `{}` is absent (package libonnx-testdata)\n", options.data);
    return kSkipped;
  }
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(options.data)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && Lower(name).find(Lower(options.filter)) != std::string::npos)
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
  Exclusions exclusions;
  if (!options.exclusions.empty()) {
    absl::StatusOr<Exclusions> read = ReadExclusions(options.exclusions);
    if (!read.ok()) return std::cerr << MessageOf(read.status()) << "\n", 1;
    exclusions = *std::move(read);
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
  if (!options.update) return Report(options, results, listed, exclusions);
  for (auto& [name, result] : results) {
    if (options.interpreted_only && listed.contains(name)) result.compiled = listed[name].compiled;
    listed[name] = result;
  }
  if (options.filter.empty()) listed = results;  // cases that are gone leave the manifest
  if (absl::Status status = WriteManifest(options.manifest, listed); !status.ok()) {
    return std::cerr << MessageOf(status) << "\n", 1;
  }
  return Report(options, results, listed, exclusions);
}

}  // namespace
}  // namespace quench::conformance

int main(int argc, char** argv) {
  quench::conformance::Options options;
  CLI::App app("Runs ONNX's node cases through import, interpreter and native code");
  app.add_option("--data", options.data, "folder with one folder per case");
  app.add_option("--manifest", options.manifest, "expected results (TSV)");
  app.add_option("--exclusions", options.exclusions,
                 "why cases neither pass nor are unsupported (TSV)");
  app.add_option("--filter", options.filter, "only cases whose name contains this, in any case")
      ->envname("QUENCH_TEST_PATTERN");
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
  // As scripts/update_goldens asks every golden test.
  if (std::getenv("QUENCH_UPDATE_GOLDENS") != nullptr && !options.manifest.empty())
    options.update = true;
  if (options.worker.empty()) return quench::conformance::Run(options);
  quench::conformance::CaseOptions cases;
  cases.compile = !options.interpreted_only;
  cases.of_largest = options.of_largest;
  cases.scratch = std::filesystem::path(options.worker) / std::to_string(::getpid());
  return quench::conformance::ServeCases(cases);
}
