// Every option of every command has an effect, or is refused with a reason.
//
// The options are those that --help lists; tests/cases/options/options.txt has a row for each, which
// says what is run without the option, what with it, and what then differs. An option without a row
// fails, as does a row without an option. Rows that use a gateway run with sanitizers, as does a
// sample of the rest (QUENCH_FULL=1: all of it).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "common/ir/npy.h"
#include "tests/e2e/quench_process.h"
#include "tests/support/background.h"
#include "tests/support/certificates.h"
#include "tests/support/onnx_models.h"
#include "tests/support/sample.h"

namespace quench::testing::options_test {
namespace {

using Words = std::vector<std::string>;

Words Split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

struct Row {
  std::string command, option, base, more, effect;
};

// The program that runs command line `line`, the `index`-th: of a sample, and of what only this build
// has, what becomes quench-remote for a gateway, the one with sanitizers.
std::string ProgramFor(const std::string& line, size_t index) {
  constexpr size_t kSample = 16;  // one in so many
  const std::string command = line.substr(0, line.find(' '));
  const bool remote = command == "workflow" || command == "fleet" || command == "blobs" ||
                      command == "serve" || line.find("--gateway") != std::string::npos;
  if (Full() || index % kSample == 0) return QUENCH_BINARY;
  return remote ? QUENCH_REMOTE_BINARY : QUENCH_RELEASE_BINARY;
}

std::vector<Row> ReadTable() {
  std::vector<Row> rows;
  std::istringstream file(*ReadFile(QUENCH_SOURCE_DIR "/tests/cases/options/options.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Words cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(Trimmed(cell));
    if (cells.size() != 5) {
      ADD_FAILURE() << "five cells are wanted: " << line;
      continue;
    }
    rows.push_back({cells[0], cells[1], cells[2], cells[3], cells[4]});
  }
  return rows;
}

// The contents of --help: options by command, under each of their names, and the subcommands.
class Help {
 public:
  Help() { Walk("", {}); }
  // All long names of each option; a positional has one.
  const std::map<std::string, std::vector<Words>>& options() const { return options_; }

 private:
  static constexpr size_t kWidth = 100;  // of lines, where there is no terminal

  void Walk(const std::string& command, const std::set<Words>& above) {
    Words arguments = Split(command);
    arguments.emplace_back("--help-all");
    const Outcome outcome = work_.Run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << command;
    std::set<Words> listed = above;
    Words commands;
    std::string section;
    std::istringstream lines(outcome.out);
    static const std::regex option("^ {2}(?: {4}|-\\w, )(--[^ ,]+(?:, --[^ ,]+)*)( .*)?$");
    static const std::regex other("^ {2}([^ -][^ ]*)( .*)?$");
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), kWidth) << command << ": " << line;
      std::smatch match;
      if (!line.empty() && line[0] != ' ') section = line;
      if (section == "Examples:") continue;
      if (section == "Commands:" && std::regex_match(line, match, other)) {
        commands.push_back(match[1]);
      } else if (section == "Arguments:" && std::regex_match(line, match, other)) {
        EXPECT_TRUE(listed.insert({match[1]}).second) << command << ": twice " << line;
        options_[command].push_back({match[1]});
      } else if (std::regex_match(line, match, option)) {
        Words names;
        std::istringstream parts(match[1]);
        for (std::string name; std::getline(parts, name, ',');) names.push_back(Trimmed(name));
        if (names == Words{"--help"} || names == Words{"--help-all"} || names == Words{"--version"})
          continue;
        if (above.contains(names)) continue;
        EXPECT_TRUE(listed.insert(names).second) << command << ": twice " << line;
        options_[command].push_back(names);
      }
    }
    options_[command];
    for (const std::string& each : commands) Walk(Trimmed(command + " " + each), listed);
  }

  const Workspace work_{QUENCH_RELEASE_BINARY};
  std::map<std::string, std::vector<Words>> options_;
};

// The leftovers of a run of the program, as far as they are the same every time.
struct Trace {
  Outcome outcome;
  std::string text;  // output and files
};

class OptionsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    fixtures_ = new Workspace(QUENCH_RELEASE_BINARY);
    WriteModels();
    for (const char* line :
         {"compile @digits --output model", "compile @digits --batch 1 --output one",
          "compile wide.onnx --output wide", "compile @digits --float16 --output half",
          "compile @digits --bfloat16 --output brain",
          "calibrate dead.ir.txt --random 1 --output dead.stats --no-identities "
          "--no-shape-arithmetic --no-fold-constants --no-fold-batch-norms "
          "--no-transposed-convolutions --no-common-subexpressions",
          "compile lookup.onnx --output lookup",
          "calibrate @digits --batch 1 --data @samples --output s.stats",
          "quantize @digits --batch 1 -c s.stats --output q.onnx"}) {
      const Outcome made = fixtures_->Run(Split(Filled(line)));
      ASSERT_EQ(made.exit_code, 0) << line << "\n" << made.err;
    }
    std::filesystem::copy_file(fixtures_->path("s.stats"), fixtures_->path("added.stats"));
    for (const std::string& pass : passes_) {
      const Outcome made = fixtures_->Run({"compile", pass + ".ir.txt", "--output", pass});
      ASSERT_EQ(made.exit_code, 0) << pass << "\n" << made.err;
    }
    server_ = new Background({QUENCH_BINARY, "serve", "--listen", "127.0.0.1:0", "--state-dir",
                              fixtures_->path("state").string()},
                             fixtures_->path("log"));
    ASSERT_TRUE(server_->WaitForLog("gateway serves on ")) << server_->Log();
    ASSERT_TRUE(server_->WaitForLog("blobs in ")) << server_->Log();
    const auto there = [](const char* line) {
      return fixtures_->RunProgram(QUENCH_REMOTE_BINARY, Split(Filled(line)));
    };
    // A result is cached there from its first computation on.
    const Outcome put = there("blobs put @digits --gateway @gateway");
    ASSERT_EQ(put.exit_code, 0) << put.err;
    blob_ = Split(put.out)[0];
    fixtures_->Write(
        "spec.txtpb",
        fmt::format("analyse {{ models {{ name: \"m\" model {{ name: \"digits.onnx\" file {{ "
                    "hash: \"{}\" size_bytes: {} }} }} }} }}",
                    blob_.substr(0, 64), blob_.substr(65)));
    for (const char* line :
         {"compile @digits --gateway @gateway --output there",
          "verify @digits @model/model.so --gateway @gateway", "analyse @digits --gateway @gateway",
          "fleet compile @digits --target x86-64-v2 --request-id taken --gateway @gateway",
          "fleet compile @digits --target x86-64-v2 --request-id other --gateway @gateway"}) {
      const Outcome done = there(line);
      ASSERT_EQ(done.exit_code, 0) << line << "\n" << done.err;
    }
    const Outcome taken =
        there("workflow create spec.txtpb --watch --request-id taken --gateway @gateway");
    ASSERT_EQ(taken.exit_code, 0) << taken.err;
    fixtures_->Write("spec.txtpb", *ReadFile(fixtures_->path("spec.txtpb")) + " title: \"other\"");
    const Outcome listed = there("workflow list --format json --gateway @gateway");
    workflow_ = nlohmann::json::parse(listed.out).at("workflows").at(0).at("name");
    std::string failing_spec = *ReadFile(fixtures_->path("spec.txtpb"));
    failing_spec.insert(failing_spec.find("models"), "sizes { symbol: \"none\" size: 1 } ");
    fixtures_->Write("failing.txtpb", failing_spec);
    const Outcome failing = there("workflow create failing.txtpb --gateway @gateway");
    ASSERT_EQ(failing.exit_code, 0) << failing.err;
    failed_ = Split(failing.out)[0];
    ASSERT_NE(there("workflow watch @failed --gateway @gateway").exit_code, 0);
  }
  static void TearDownTestSuite() {
    delete server_;
    delete fixtures_;
  }

  static void WriteModels();
  static Trace Run(const std::string& program, const std::string& line);
  static std::string Filled(std::string text);
  static std::string Problem(const Row& row, const Trace& base, const Trace& more);

  static Workspace* fixtures_;
  static Background* server_;
  static Words passes_;                   // that have a case
  static std::string blob_;               // there, of digits.onnx
  static std::string workflow_, failed_;  // one that is done, and one that is not
};
Workspace* OptionsTest::fixtures_ = nullptr;
Background* OptionsTest::server_ = nullptr;
Words OptionsTest::passes_;
std::string OptionsTest::blob_, OptionsTest::workflow_, OptionsTest::failed_;

// digits is a model of images; `wide` has what it lacks: a second input, dims of two names, weights
// in a file beside it. `lookup` fails for half of all random inputs: its table has one row.
void OptionsTest::WriteModels() {
  OnnxModel wide;
  wide.Input("x", DataType::kF32, {"rows", 64}).Input("bias", DataType::kF32, {64});
  auto& weight = *wide.graph().add_initializer();
  weight.set_name("weight");
  weight.set_data_type(1);
  weight.add_dims(64);
  weight.add_dims(64);
  weight.set_data_location(onnx::v1::TensorProto::EXTERNAL);
  auto& location = *weight.add_external_data();
  location.set_key("location");
  location.set_value("weights.bin");
  wide.Node("MatMul", {"x", "weight"}, {"product"}, "product");
  wide.Node("Add", {"product", "bias"}, {"sum"}, "sum");
  wide.Node("Softmax", {"sum"}, {"y"}, "softmax");
  wide.Output("y");
  fixtures_->Write("wide.onnx", wide.proto().SerializeAsString());
  std::string weights;
  for (int i = 0; i < 64 * 64; ++i) weights += std::string("\0\0\0", 3) + static_cast<char>(i % 61);
  fixtures_->Write("weights.bin", weights);
  std::reverse(weights.begin(), weights.end() - 4);
  std::filesystem::create_directory(fixtures_->path("other"));
  fixtures_->Write("other/weights.bin", weights);
  fixtures_->Write("old.txt", "");
  fixtures_->Write("edits.txt", "remove relu3\n");
  fixtures_->Write("cert.pem", Authority("nobody").certificate());
  std::filesystem::create_directory(fixtures_->path("forced"));
  fixtures_->Write("forced/model.so", "");
  fixtures_->Write("classes.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  std::filesystem::copy_file(QUENCH_SOURCE_DIR "/examples/samples/0_is_9.png",
                             fixtures_->path("9.png"));
  fixtures_->Write("labels.txt", "0\n1\n2\n3\n4\n5\n6\n7\n");
  fixtures_->Write("project.txtpb",
                   "choices { passes { batch: 1 } quantize { options { per_channel: true exclude: "
                   "\"op:Gemm\" }\n"
                   "calibrate { samples { random: 2 } } } compile_options { opt_level: 1 } }");
  fixtures_->Write("wrong.txtpb", "choices { compile_options { no_winogrd: true } }");

  OnnxModel convolutions;  // large enough for Winograd's minimal filtering
  convolutions.Input("image", DataType::kF32, {1, 32, 40, 40});
  convolutions.Initializer("taps", Tensor::Zeros(DataType::kF32, {32, 32, 3, 3}));
  convolutions.Node("Conv", {"image", "taps"}, {"edges"}, "conv");
  convolutions.Output("edges");
  fixtures_->Write("convolutions.onnx", convolutions.proto().SerializeAsString());

  OnnxModel lookup;
  lookup.Input("i", DataType::kI64, {1});
  lookup.Initializer("table", Tensor::Of<float>(DataType::kF32, {1, 2}, {1, 2}));
  lookup.Node("Gather", {"table", "i"}, {"row"}, "row");
  lookup.Output("row");
  fixtures_->Write("lookup.onnx", lookup.proto().SerializeAsString());

  OnnxModel scopes;
  scopes.Input("x", DataType::kF32, {2});
  scopes.Node("Relu", {"x"}, {"r"}, "/block/relu");
  scopes.Node("Exp", {"r"}, {"y"}, "/block/exp");
  scopes.Output("y");
  fixtures_->Write("scopes.onnx", scopes.proto().SerializeAsString());

  fixtures_->Write("dead.ir.txt", R"(quench.ir 1
module "nobody wants the exponential" canonical {
  input %x: f32[2, 4]
  %e = Exp(%x)
  %y = Relu(%x)
  output %y
}
)");

  fixtures_->Write("parts.ir.txt", R"(quench.ir 1
module "something for each simplification" canonical {
  input %x: f32[2, 4, 2]
  const %one: f32[] = [1.0]
  const %axis: i64[1] = [0]
  const %w: f32[1, 2, 2] = [1.0, 2.0, 3.0, 4.0]
  %a = Add(%x, %one)
  %m = MatMul(%a, %w)
  %u = Unsqueeze(%a, %axis)
  %v = Unsqueeze(%m, %axis)
  %y = Concat(%u, %v) {axis = 0}
  output %y
}
)");

  fixtures_->Write("sums.ir.txt", kSumsModule);
  ASSERT_TRUE(WriteNpy(Tensor::Zeros(DataType::kF32, {3, 2}), fixtures_->path("steps.npy")).ok());

  const std::filesystem::path cases = QUENCH_SOURCE_DIR "/tests/cases/passes";
  for (const auto& entry : std::filesystem::directory_iterator(cases)) {
    const std::string text = *ReadFile(entry.path());
    const size_t begin = text.find("quench.ir"), end = text.find("---\n");
    const std::string name = entry.path().filename().string();
    fixtures_->Write(name, text.substr(begin, end - begin));
    passes_.push_back(name.substr(0, name.find('.')));
  }
}

std::string OptionsTest::Filled(std::string text) {
  const auto fill = [&](const std::string& name, const std::string& value) {
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
      text.replace(at, name.size(), value);
  };
  fill("@digits", DigitsModel());
  fill("@samples", QUENCH_SOURCE_DIR "/bench/models/digits_sample.npy");
  fill("@gateway", server_ == nullptr ? "" : server_->FromLog("gateway serves on "));
  fill("@blob", blob_);
  fill("@workflow", workflow_);
  fill("@failed", failed_);
  fill("@", fixtures_ == nullptr ? "" : fixtures_->path("").string());
  return text;
}

Trace OptionsTest::Run(const std::string& program, const std::string& line) {
  const Workspace work(program);
  Trace trace;
  trace.outcome = work.Run(Split(Filled(line)));
  trace.text = trace.outcome.out;
  static const std::regex seconds("[0-9.]+ s\\]");
  trace.text += std::regex_replace(trace.outcome.err, seconds, "");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(work.path(""))) {
    const std::string name = std::filesystem::relative(entry.path(), work.path("")).string();
    if (name.starts_with(".cache") || !entry.is_regular_file()) continue;
    trace.text += fmt::format("\n{}: {}", name, *ReadFile(entry.path()));
  }
  return trace;
}

// "" where the effect is seen.
std::string OptionsTest::Problem(const Row& row, const Trace& base, const Trace& more) {
  const std::string kind = row.effect.substr(0, row.effect.find(' '));
  const std::string text = Trimmed(row.effect.substr(kind.size()));
  const auto says = [](const Trace& trace, const std::string& wanted) {
    return (trace.outcome.out + trace.outcome.err).find(wanted) != std::string::npos;
  };
  const bool refused = more.outcome.exit_code != 0;
  if (kind == "stops")
    return refused && says(more, text) ? "" : fmt::format("does not stop with `{}`", text);
  if (kind == "refused") {
    if (!refused || !says(more, text)) return fmt::format("is not refused with `{}`", text);
    return says(base, text) ? fmt::format("`{}` is said without it too", text) : "";
  }
  if (refused) return fmt::format("ends with exit code {}", more.outcome.exit_code);
  if (kind == "needed") return base.outcome.exit_code == 0 ? "is not needed" : "";
  if (base.outcome.exit_code != 0)
    return fmt::format("without it the exit code is {}", base.outcome.exit_code);
  if (kind == "differs") return base.text == more.text ? "changes nothing" : "";
  if (kind == "says") {
    if (!says(more, text)) return fmt::format("does not make it say `{}`", text);
    return says(base, text) ? fmt::format("`{}` is said without it too", text) : "";
  }
  if (kind == "hushes") {
    if (!says(base, text)) return fmt::format("`{}` is not said without it either", text);
    return says(more, text) ? fmt::format("`{}` is said all the same", text) : "";
  }
  if (kind == "fewer") {
    const auto lines = [](const Trace& trace) {
      return std::count(trace.outcome.out.begin(), trace.outcome.out.end(), '\n');
    };
    return lines(more) < lines(base) ? "" : "prints as many lines";
  }
  if (kind == "threads") {
    if (more.outcome.most_threads > base.outcome.most_threads + 20) return "";
    return fmt::format("has {} threads, without it {}", more.outcome.most_threads,
                       base.outcome.most_threads);
  }
  if (kind == "grows" || kind == "shrinks") {
    const double before = nlohmann::json::parse(base.outcome.out).at(text),
                 after = nlohmann::json::parse(more.outcome.out).at(text);
    return (kind == "grows" ? after > 2 * before : 2 * after < before)
               ? ""
               : fmt::format("`{}` is {}, before {}", text, after, before);
  }
  return fmt::format("`{}` is not a kind of effect", kind);
}

void InParallel(size_t count, const std::function<void(size_t)>& task) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < count;) task(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OptionsTest, EveryOptionHasAnEffect) {
  const Help help;
  std::vector<Row> rows;
  std::map<std::string, std::set<std::string>> missing;
  for (const auto& [command, options] : help.options()) {
    for (const Words& names : options) missing[command].insert(names[0]);
  }
  const auto take = [&](const Row& row) {
    const auto found = help.options().find(row.command);
    ASSERT_TRUE(found != help.options().end()) << "there is no command `" << row.command << "`";
    for (const Words& names : found->second) {
      if (std::find(names.begin(), names.end(), row.option) == names.end()) continue;
      missing[row.command].erase(names[0]);
      rows.push_back(row);
      return;
    }
    ADD_FAILURE() << row.command << " has no option " << row.option;
  };
  const std::vector<Row> table = ReadTable();
  for (const Row& row : table) {
    if (row.option != "--no-PASS") take(row);
  }
  // The other passes: each on the model of its own case.
  for (const Row& row : table) {
    if (row.option != "--no-PASS") continue;
    const std::set<std::string> left = missing[row.command];
    for (const std::string& option : left) {
      if (!option.starts_with("--no-") || option == "--no-types") continue;
      std::string pass = option.substr(5);
      std::replace(pass.begin(), pass.end(), '-', '_');
      const auto with = [&](const std::string& text) {
        return std::regex_replace(text, std::regex("PASS"), pass);
      };
      take({row.command, option, with(row.base), option, row.effect});
    }
  }
  for (const auto& [command, options] : missing) {
    EXPECT_EQ(options, std::set<std::string>{}) << "`" << command << "`: options without a row";
  }

  struct Base {
    Trace trace;
    bool twice = false;  // what is cached is hushed: whoever comes second sees that
  };
  std::map<std::string, size_t> order;
  std::map<std::pair<std::string, std::string>, Base> bases;  // by program and line
  std::vector<std::string> programs;                          // of rows
  for (const Row& row : rows) {
    const std::string line = row.command + " " + row.base;
    const size_t index = order.try_emplace(line, order.size()).first->second;
    programs.push_back(ProgramFor(line + " " + row.more, index));
    if (row.effect.starts_with("stops")) continue;
    Base& base = bases[{programs.back(), line}];
    base.twice = base.twice || row.effect.starts_with("hushes");
  }
  std::vector<std::pair<const std::pair<std::string, std::string>, Base>*> to_run;
  for (auto& base : bases) to_run.push_back(&base);
  InParallel(to_run.size(), [&](size_t i) {
    const auto& [program, line] = to_run[i]->first;
    if (to_run[i]->second.twice) Run(program, line);
    to_run[i]->second.trace = Run(program, line);
  });
  std::mutex mutex;
  InParallel(rows.size(), [&](size_t i) {
    const Row& row = rows[i];
    const std::string line = row.command + " " + row.base;
    const Trace more = Run(programs[i], line + " " + row.more);
    const auto base = bases.find({programs[i], line});
    const std::string problem =
        Problem(row, base == bases.end() ? Trace() : base->second.trace, more);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(problem, "") << line << " " << row.more << "\n" << more.outcome.err;
  });
}

// An empty value, as an unset variable of a shell leaves behind, is never taken for "not given".
TEST_F(OptionsTest, EmptyValuesAreUsageErrors) {
  const Help help;
  std::vector<Words> lines;
  std::set<std::string> seen;
  for (const Row& row : ReadTable()) {
    const Words added = Split(row.more);
    if (!row.option.starts_with("--") || added.size() < 2 || added[0] != row.option) continue;
    if (!seen.insert(row.command + " " + row.option).second) continue;
    Words line = Split(Filled(row.command + " " + row.base));
    const bool assigned = lines.size() % 2 == 0;
    line.push_back(row.option + (assigned ? "=" : ""));
    if (!assigned) line.emplace_back("");
    lines.push_back(std::move(line));
  }
  for (const auto& [command, options] : help.options()) {
    for (const Words& names : options) {
      if (names[0].starts_with("-")) continue;
      lines.push_back(Split(command));
      lines.back().emplace_back("");
    }
  }
  ASSERT_GT(lines.size(), 200u);
  const Workspace work;
  std::mutex mutex;
  InParallel(lines.size(), [&](size_t i) {
    const std::string program = ProgramFor(fmt::format("{}", fmt::join(lines[i], " ")), i);
    const Outcome outcome = work.RunProgram(program, lines[i]);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(outcome.exit_code, 2) << fmt::format("{}", fmt::join(lines[i], " "));
    EXPECT_NE(outcome.err.find("the value is empty"), std::string::npos)
        << fmt::format("{}: {}", fmt::join(lines[i], " "), outcome.err);
  });
}

TEST_F(OptionsTest, GlobalOptionsStandBeforeAndBehindTheCommand) {
  const Workspace work;
  const std::string gateway = Filled("@gateway");
  for (const Words& line :
       std::vector<Words>{{"--progress", "none", "workflow", "--gateway", gateway, "list"},
                          {"workflow", "--progress", "none", "list", "--gateway", gateway},
                          {"workflow", "list", "--gateway", gateway, "--progress", "none"},
                          {"--progress", "none", "import", DigitsModel()},
                          {"import", "--progress", "none", DigitsModel()},
                          {"import", DigitsModel(), "--progress", "none"}}) {
    const Outcome outcome = work.Run(line);
    EXPECT_EQ(outcome.exit_code, 0) << fmt::format("{}", fmt::join(line, " ")) << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_EQ(
      work.Run({"--progress", "none", "import", DigitsModel(), "--progress", "json"}).exit_code, 2);
}

}  // namespace
}  // namespace quench::testing::options_test
