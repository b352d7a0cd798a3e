#include "common/ir/wire/module_file.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/status.h"
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "common/ir/wire/wire.h"
#include "tests/unit/common/ir/sample_graphs.h"

namespace quench::module_file_test {
namespace {

class ModuleFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // A constant, and a tensor of an attribute in a body, beyond what messages and texts hold themselves.
    g_ = testing::EverythingGraph();
    std::vector<int64_t> table(3000);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int64_t>(i * i);
    const ValueId w = g_.AddConstant("large", Tensor::I64(table));
    table[7] = 1;
    const NodeId node = g_.AddNode("Op", "op", {w}, 1, {{"table", Tensor::I64(table)}});
    g_.outputs.push_back(g_.node(node).outputs[0]);
    g_.value(g_.outputs.back()).type = Type::Tensor(DataType::kF32, {});
    ASSERT_TRUE(VerifyGraph(g_).ok()) << VerifyGraph(g_);
  }
  std::filesystem::path At(const std::string& name) const { return folder_.path() / name; }
  // Read with a store that has nothing, as by somebody else.
  absl::StatusOr<Graph> Read(const std::filesystem::path& path, bool beside = true) const {
    const auto store = LocalBlobStore::Open(TempDir::Create(folder_.path())->Release());
    QUENCH_ASSIGN_OR_RETURN(const auto file, FileMapping::Open(path));
    return ReadModule(file, beside ? path.parent_path() : "", **store);
  }
  std::string ProblemOf(const std::string& bytes) const {
    EXPECT_TRUE(WriteFileAtomically(At("wrong"), bytes).ok());
    return MessageOf(Read(At("wrong")).status());
  }
  std::string Written(const std::string& name, WeightsIn weights = WeightsIn::kFile) const {
    const absl::Status status = name.ends_with(".txt") ? WriteTextModuleFile(g_, At(name), weights)
                                                       : WriteModuleFile(g_, At(name), weights);
    EXPECT_TRUE(status.ok()) << status;
    return *ReadFile(At(name));
  }

  const TempDir folder_ = *TempDir::Create();
  Graph g_;
};

TEST_F(ModuleFileTest, HoldsItsWeights) {
  for (const char* name : {"m.qir", "m.ir.txt"}) {
    const std::string bytes = Written(name);
    EXPECT_FALSE(std::filesystem::exists(WeightsFileOf(At(name))));
    const absl::StatusOr<Graph> read = Read(At(name), false);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FirstDifference(g_, *read), "") << name;
    EXPECT_EQ(Fingerprint(g_), Fingerprint(*read));
    g_ = *read;  // what was read is written alike, wherever its weights lie now
    EXPECT_EQ(Written(name), bytes);
  }
}

TEST_F(ModuleFileTest, WeightsLieBesideIt) {
  for (const char* name : {"m.qir", "m.ir.txt"}) {
    const size_t whole = Written("whole" + std::string(name)).size();
    EXPECT_LT(Written(name, WeightsIn::kBeside).size() + 40'000, whole);
    std::filesystem::create_directory(At("elsewhere"));
    for (const std::filesystem::path& file : {At(name), WeightsFileOf(At(name))})
      std::filesystem::rename(file, At("elsewhere") / file.filename());
    const absl::StatusOr<Graph> read = Read(At("elsewhere") / name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FirstDifference(g_, *read), "");
    EXPECT_NE(MessageOf(Read(At("elsewhere") / name, false).status()).find("there is none here"),
              std::string::npos);
    std::filesystem::remove(WeightsFileOf(At("elsewhere") / name));
    EXPECT_NE(MessageOf(Read(At("elsewhere") / name).status()).find(std::string(name) + ".weights"),
              std::string::npos);
  }
}

TEST_F(ModuleFileTest, ReadsWhatTheStoreHasTheWeightsOf) {
  const auto store = *LocalBlobStore::Open(At("store"));
  ASSERT_TRUE(WriteFileAtomically(At("thin.qir"), *SerializeModule(g_, *store)).ok());
  const auto file = *FileMapping::Open(At("thin.qir"));
  const absl::StatusOr<Graph> read = ReadModule(file, "", *store);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FirstDifference(g_, *read), "");
  EXPECT_EQ(Read(At("thin.qir")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModuleFileTest, DamageIsFound) {
  for (const char* name : {"m.qir", "m.ir.txt"}) {
    const std::string good = Written(name);
    for (const size_t size : {good.size() - 2, good.size() / 2, size_t{100}, size_t{17}})
      EXPECT_NE(ProblemOf(good.substr(0, size)), "") << name << " " << size;
    std::string flipped = good;
    char& weight = flipped[flipped.size() - 1000];
    weight = weight == 'A' || weight == '\n' ? 'B' : 'A';
    EXPECT_NE(ProblemOf(flipped), "") << name;
  }
}

TEST_F(ModuleFileTest, ErrorsSayAtWhichByte) {
  const std::string good = Written("m.qir");
  const auto with = [&](size_t at, uint64_t number) {
    std::string bytes = good;
    for (size_t i = 0; i < 8; ++i) bytes[at + i] = static_cast<char>(number >> (8 * i));
    return ProblemOf(bytes);
  };
  const size_t module =
      48 + 48 * static_cast<size_t>(good[24]);  // behind the index of that many blobs
  for (const auto& [problem, words] : std::vector<std::pair<std::string, std::string>>{
           {ProblemOf(good.substr(0, 20)), "damaged: byte 20: its header takes 48 bytes"},
           {with(16, uint64_t{1} << 60),
            "damaged: byte 16: the module takes 1152921504606846976 bytes"},
           {with(24, ~uint64_t{0}), "damaged: byte 24: 18446744073709551615 blobs"},
           {with(32, good.size()), "damaged: byte 32: a name takes"},
           {with(40, 1), "newer version, or is damaged: byte 40"},
           {with(48 + 32, good.size() + 1), "damaged: byte 80: blob 0 of"},
           {with(48 + 40, ~uint64_t{0}), "damaged: byte 80: blob 0 of"},
           {with(48, 5), "the module at byte " + std::to_string(module)},
           {with(module, ~uint64_t{0}), "the module is not a protobuf message: byte "},
           {with(good.size() - 8, 1), "the weights are damaged: byte "}}) {
    EXPECT_NE(problem.find(words), std::string::npos) << words << " is not in: " << problem;
  }
}

TEST_F(ModuleFileTest, NothingIsReadOutsideItsFolder) {
  const std::string text = Written("m.ir.txt", WeightsIn::kBeside);
  const std::string module = text.substr(0, text.find("\nweights ") + 1);
  for (const char* name : {"../x", "/etc/passwd", "..", "."})
    EXPECT_NE(ProblemOf(module + "weights file \"" + name + "\"\n").find("beside the module"),
              std::string::npos)
        << name;
  EXPECT_NE(ProblemOf(module + "weights 5\n").find("was expected"), std::string::npos);
  EXPECT_NE(ProblemOf(module + "weights \"" + std::string(64, 'a') + "\" 5\n?\n")
                .find("a line of base64"),
            std::string::npos);
  EXPECT_NE(ProblemOf(module + "weights \"" + std::string(64, 'a') + "\" 5\nAAAA\n"), "");
}

// Any bytes give a graph or an error; sizes that they claim take no memory.
TEST_F(ModuleFileTest, StrangersFiles) {
  std::mt19937 random(1);
  for (const char* name : {"m.qir", "m.ir.txt"}) {
    const std::string good = Written(name);
    for (int i = 0; i < 40; ++i) {
      std::string bytes = good;
      const size_t reach = i % 2 == 0 ? 160 : bytes.size();  // the header above all
      for (int flips = 0; flips < 3; ++flips)
        bytes[16 + random() % (reach - 16)] = static_cast<char>(random());
      const auto store = *LocalBlobStore::Open(At("hostile"));
      ASSERT_TRUE(WriteFileAtomically(At("wrong"), bytes).ok());
      const absl::StatusOr<Graph> read =
          ReadModule(*FileMapping::Open(At("wrong")), folder_.path(), *store);
      if (read.ok()) EXPECT_NE(PrintGraph(*read), "");
    }
  }
}

}  // namespace
}  // namespace quench::module_file_test
