// `quench fleet`, as users run it.
#include <gtest/gtest.h>

#include <fstream>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "tests/e2e/gateway_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/onnx_models.h"

namespace quench::testing::fleet_test {
namespace {

namespace fs = std::filesystem;

class FleetTest : public GatewayTest {
 protected:
  // Models that differ in their names only, and one that is damaged.
  void WriteModels(int count) {
    fs::create_directories(work_.path("models/deep"));
    const std::string digits = *ReadFile(DigitsModel());
    for (int i = 0; i < count; ++i)
      work_.Write(fmt::format("models/{}m{}.onnx", i % 2 == 0 ? "" : "deep/", i), digits);
  }
  std::vector<std::string> Lines(const std::string& file) {
    std::vector<std::string> lines;
    std::ifstream in(work_.path(file));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<std::string> Compile(std::vector<std::string> more) {
    std::vector<std::string> words = {"fleet",          "compile",   "models/**/*.onnx",
                                      "--target",       "x86-64-v2", "--target",
                                      "raspberry-pi/5", "--batch",   "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(FleetTest, CompilesAllForAllAndStartsNothingTwice) {
  WriteModels(3);
  work_.Write("half.txtpb", "choices { passes { float16: true } }");
  const std::vector<std::string> command =
      Compile({"--options", "default", "--options", "half.txtpb", "--request-id", "nightly",
               "--label", "team=x", "--output", "out", "--table", "tables/all.csv"});
  const Outcome first = Run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("fleet nightly: succeeded"));
  EXPECT_THAT(first.out, HasSubstr("cells: 12, 0 without a library"));
  for (const std::string model : {"m0", "deep.m1", "m2"}) {
    for (const std::string options : {"default", "half"}) {
      for (const std::string target : {"x86-64-v2", "raspberry-pi/5"}) {
        const fs::path folder = work_.path("out") / model / options / target;
        EXPECT_TRUE(fs::exists(folder / "model.so")) << folder;
        EXPECT_TRUE(fs::exists(folder / "model.h")) << folder;
      }
    }
  }
  EXPECT_FALSE(fs::exists(work_.path("out/m0/default/x86-64-v2/model.part")));
  const std::vector<std::string> rows = Lines("tables/all.csv");
  ASSERT_EQ(rows.size(), 13u);
  EXPECT_THAT(rows[0], HasSubstr("model,options,target,state,seconds,bytes,cached"));
  EXPECT_THAT(rows[1], HasSubstr("deep.m1,default,x86-64-v2,succeeded,"));
  EXPECT_THAT(*ReadFile(work_.path("tables/all.csv")), Not(HasSubstr("failed")));
  // The release's program makes the same bytes by itself.
  const Outcome here = work_.Run(
      {"compile", "models/m0.onnx", "--target", "x86-64-v2", "--batch", "1", "--output", "here"});
  ASSERT_EQ(here.exit_code, 0) << here.err;
  EXPECT_TRUE(*ReadFile(work_.path("here/model.so")) ==
              *ReadFile(work_.path("out/m0/default/x86-64-v2/model.so")));

  const std::string name = List().at(0).at("name");
  const Outcome logs = Run({"workflow", "logs", name, "deep.m1/import", "--follow"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_THAT(logs.out, HasSubstr(" deep.m1/import#1 taken by "));
  EXPECT_THAT(logs.out, HasSubstr(" done in "));
  EXPECT_THAT(logs.out, Not(HasSubstr("m0")));
  EXPECT_THAT(Run({"workflow", "logs", name}).out, HasSubstr(" m2/half/x86-64-v2/compile#1 "));

  const auto written = fs::last_write_time(work_.path("out/m0/default/x86-64-v2/model.so"));
  const size_t workflows = List().size();
  const Outcome again = Run(command);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(List().size(), workflows);
  EXPECT_EQ(fs::last_write_time(work_.path("out/m0/default/x86-64-v2/model.so")), written);
  const Outcome listed =
      Run({"workflow", "list", "--filter", "labels.team = x AND fleet = nightly"});
  EXPECT_THAT(listed.out, HasSubstr("fleet nightly 1/1"));
  EXPECT_THAT(Run({"workflow", "list", "--filter", "labels.team = y"}).out,
              Not(HasSubstr("nightly")));
  EXPECT_THAT(Run({"fleet", "list"}).out, HasSubstr("nightly"));
  // The same name for other models.
  work_.Write("models/more.onnx", *ReadFile(DigitsModel()));
  const Outcome other = Run(command);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("was it asked for with others before?"));
}

TEST_F(FleetTest, ADamagedModelFailsAsItsCells) {
  WriteModels(2);
  work_.Write("models/bad.onnx", "this is no model");
  const Outcome outcome =
      Run(Compile({"--request-id", "bad", "--output", "out", "--table", "t.json"}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("2 of 6 cells of fleet `bad` have not succeeded"));
  EXPECT_THAT(outcome.out,
              HasSubstr("bad/default/x86-64-v2 and 1 more of its model: step `bad/import`: "));
  EXPECT_TRUE(fs::exists(work_.path("out/m0/default/x86-64-v2/model.so")));
  EXPECT_FALSE(fs::exists(work_.path("out/bad")));
  const nlohmann::json table = nlohmann::json::parse(*ReadFile(work_.path("t.json")));
  EXPECT_EQ(table.at("cells").size(), 6u);
  EXPECT_EQ(table.at("fleet").at("state"), "STATE_FAILED");
  EXPECT_EQ(table.at("cells").at(0).at("state"), "failed");
  EXPECT_EQ(table.at("cells").at(5).at("bytes"),
            fs::file_size(work_.path("out/m0/default/raspberry-pi/5/model.so")));
}

// A model whose weights lie in these files beside it.
std::string ModelWithFiles(const std::vector<std::string>& locations) {
  OnnxModel model;
  model.Input("x", DataType::kF32, {1}).Output("y");
  for (size_t i = 0; i < locations.size(); ++i) {
    auto& weight = *model.graph().add_initializer();
    weight.set_name(fmt::format("w{}", i));
    weight.set_data_type(1);
    weight.add_dims(1);
    weight.set_data_location(onnx::v1::TensorProto::EXTERNAL);
    auto& location = *weight.add_external_data();
    location.set_key("location");
    location.set_value(locations[i]);
  }
  model.Node("Add", {"x", "w0"}, {"y"});
  return model.proto().SerializeAsString();
}

TEST_F(FleetTest, AModelWhoseWeightsCannotBeReadFailsAsItsCells) {
  WriteModels(1);
  std::vector<std::string> many;  // more than are opened
  for (int i = 0; i < 513; ++i) {
    many.push_back(fmt::format("many{}.bin", i));
    work_.Write("models/" + many.back(), "four");
  }
  work_.Write("models/many.onnx", ModelWithFiles(many));
  const std::vector<std::string> too_long = {std::string(300, 'w')};  // for a file's name
  work_.Write("models/long.onnx", ModelWithFiles(too_long));
  const Outcome outcome = Run(Compile({"--request-id", "unread", "--output", "out"}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("4 of 6 cells of fleet `unread` have not succeeded"));
  for (const std::string name : {"many", "long"}) {
    EXPECT_THAT(outcome.out, HasSubstr(name + "/default/x86-64-v2 and 1 more of its model: step `" +
                                       name + "/import`: "));
  }
  EXPECT_TRUE(fs::exists(work_.path("out/m0/default/x86-64-v2/model.so")));
}

TEST_F(FleetTest, ALibraryThatIsGoneIsAnErrorOfItsCell) {
  WriteModels(1);
  ASSERT_EQ(Run(Compile({"--request-id", "gone", "--output", "out"})).exit_code, 0);
  server_.reset();
  const std::string hash = Sha256Hex(*ReadFile(work_.path("out/m0/default/x86-64-v2/model.so")));
  int removed = 0;
  for (const auto& entry : fs::recursive_directory_iterator(work_.path("state/store/blobs"))) {
    if (entry.path().filename().string().find(hash) == std::string::npos) continue;
    fs::remove(entry.path());
    ++removed;
  }
  ASSERT_EQ(removed, 1);
  Serve();
  const Outcome watched = Run({"fleet", "watch", "gone", "--output", "again", "--table", "t.csv"});
  EXPECT_EQ(watched.exit_code, 1);
  EXPECT_THAT(watched.err, HasSubstr("1 of 2 cells"));
  EXPECT_THAT(watched.out, HasSubstr("m0/default/x86-64-v2: its library cannot be fetched: "));
  EXPECT_TRUE(fs::exists(work_.path("again/m0/default/raspberry-pi/5/model.so")));
  EXPECT_THAT(Lines("t.csv").at(1), HasSubstr("cannot be fetched"));
}

TEST_F(FleetTest, GoesOnWithoutItsClientAndThroughDeathsOfTheGateway) {
  WriteModels(8);
  const Outcome left =
      Run(Compile({"--request-id", "long", "--output", "out", "--progress", "plain"}), "fleet");
  EXPECT_EQ(left.exit_code, 130) << left.err;
  EXPECT_THAT(left.err, HasSubstr("quench fleet watch long"));
  server_.reset();  // by SIGKILL
  Serve();
  const Outcome watched = Run({"fleet", "watch", "long", "--output", "out", "--table", "t.html"});
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_THAT(watched.out, HasSubstr("cells: 16, 0 without a library"));
  EXPECT_TRUE(fs::exists(work_.path("out/deep.m7/default/raspberry-pi/5/model.so")));
  EXPECT_THAT(*ReadFile(work_.path("t.html")), HasSubstr("<title>Fleet long</title>"));
  EXPECT_EQ(Run({"fleet", "get", "long"}).exit_code, 0);
  EXPECT_THAT(Run({"fleet", "cancel", "long"}).out, HasSubstr("0 workflows"));
  EXPECT_THAT(Run({"fleet", "retry", "long"}).out, HasSubstr("0 workflows"));
}

TEST_F(FleetTest, SaysAllThatIsWrongBeforeItStarts) {
  WriteModels(1);
  work_.Write("two.txtpb", "models { name: \"m\" }");
  const Outcome outcome =
      Run({"fleet", "compile", "none/*.onnx", "nothing.onnx", "--options", "two.txtpb", "--options",
           "missing.txtpb", "--target", "x86-64-v5", "--label", "x", "--table", "t.txt"});
  EXPECT_EQ(outcome.exit_code, 1);
  for (const std::string part :
       {"no file matches `none/*.onnx`", "there is no file `nothing.onnx`",
        "`models`: the command line names the models", "missing.txtpb",
        "unknown target `x86-64-v5`", "--label", "a table ends with .csv, .json or .html"})
    EXPECT_THAT(outcome.err, HasSubstr(part));
  EXPECT_TRUE(List().empty());
  fs::create_directories(work_.path("odd/folder.onnx"));
  fs::create_symlink("nowhere", work_.path("odd/link.onnx"));
  const Outcome odd = Run({"fleet", "compile", "odd/*.onnx", "models/*.onnx"});
  EXPECT_EQ(odd.exit_code, 1);
  for (const std::string part :
       {"`odd/folder.onnx` is a folder without `saved_model.pb`", "cannot open `odd/link.onnx`"})
    EXPECT_THAT(odd.err, HasSubstr(part));
  EXPECT_TRUE(List().empty());
  const Outcome dry = Run(Compile({"--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("2 cells in 1 workflows"));
  EXPECT_TRUE(List().empty());
  EXPECT_THAT(Run({"fleet", "get", "nobody"}).err, HasSubstr("there is no fleet `nobody`"));
}

}  // namespace
}  // namespace quench::testing::fleet_test
