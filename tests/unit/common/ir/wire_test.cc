#include "common/ir/wire/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "common/base/status.h"
#include "common/ir/compare.h"
#include "common/ir/hash.h"
#include "common/ir/verify.h"
#include "tests/unit/common/ir/sample_graphs.h"

namespace quench::wire_test {
namespace {

class WireTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = TempDir::Create();
    ASSERT_TRUE(folder.ok());
    folder_.emplace(*std::move(folder));
    store_ = *LocalBlobStore::Open(folder_->path());
  }
  void ExpectRoundTrip(const Graph& g) {
    const absl::StatusOr<std::string> bytes = SerializeModule(g, *store_);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const absl::StatusOr<Graph> parsed = ParseModule(*bytes, *store_);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(FirstDifference(g, *parsed), "");
    EXPECT_EQ(Fingerprint(g), Fingerprint(*parsed));
    EXPECT_EQ(*SerializeModule(g, *store_), *bytes);
  }
  Graph Large(size_t count, float scale = 1) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) * scale;
    Graph g;
    g.outputs = {
        g.AddConstant("w", Tensor::Of(DataType::kF32, {static_cast<int64_t>(count)}, values))};
    return g;
  }
  std::optional<TempDir> folder_;
  std::shared_ptr<LocalBlobStore> store_;
};

TEST_F(WireTest, EverythingComesBack) {
  ExpectRoundTrip(testing::EverythingGraph());
  ExpectRoundTrip(testing::EveryConstantGraph());
  ExpectRoundTrip(testing::ImportedGraph());
  ExpectRoundTrip(Graph());
  for (uint32_t seed = 0; seed < 60; ++seed) ExpectRoundTrip(testing::RandomGraph(seed));
}

TEST_F(WireTest, LargeTensorsTravelByDigest) {
  Graph g = Large(2000);
  std::vector<int64_t> table(1000, 7);
  g.outputs.push_back(
      g.node(g.AddNode("Op", "op", {0}, 1, {{"table", Tensor::I64(table)}})).outputs[0]);
  g.value(g.outputs[1]).type = Type::Tensor(DataType::kF32, {});
  const absl::StatusOr<std::string> bytes = SerializeModule(g, *store_);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_LT(bytes->size(), 600u);
  EXPECT_EQ(store_->Stat()->count, 1u);  // packed
  EXPECT_EQ(store_->Stat()->bytes, 8000u + 8000u);
  const absl::StatusOr<Graph> parsed = ParseModule(*bytes, *store_);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(FirstDifference(g, *parsed), "");
  EXPECT_EQ(parsed->value(0).constant->digest, TensorDigest(g.value(0).constant->tensor));
}

TEST_F(WireTest, WhatLiesInTheStoreIsNotWrittenAgain) {
  const std::string bytes = *SerializeModule(Large(2000), *store_);
  const Graph parsed = *ParseModule(bytes, *store_);
  EXPECT_EQ(*SerializeModule(parsed, *store_), bytes);
  EXPECT_EQ(store_->Stat()->count, 1u);
  // Another store gets its own copy.
  const auto other = *LocalBlobStore::Open(folder_->path() / "other");
  EXPECT_EQ(*SerializeModule(parsed, *other), bytes);
  EXPECT_EQ(other->Stat()->count, 1u);
}

TEST_F(WireTest, EqualTensorsAreStoredOnce) {
  Graph g = Large(2000);
  g.outputs.push_back(g.AddConstant("same", Large(2000).value(0).constant->tensor));
  ASSERT_TRUE(SerializeModule(g, *store_).ok());
  EXPECT_EQ(store_->Stat()->bytes, 8000u);
}

TEST_F(WireTest, SmallTensorsStayInside) {
  ASSERT_TRUE(SerializeModule(Large(1024), *store_).ok());
  EXPECT_EQ(store_->Stat()->count, 0u);
}

TEST_F(WireTest, MissingBlobsAreNotFound) {
  const std::string bytes = *SerializeModule(Large(2000), *store_);
  ASSERT_TRUE(store_->Prune(0).ok());
  const absl::Status status = ParseModule(bytes, *store_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(MessageOf(status).find("value `w`: blob `"), std::string::npos);
}

TEST_F(WireTest, NamesAreUtf8) {
  Graph g = testing::EverythingGraph();
  g.node(0).origin = "\xff";
  EXPECT_EQ(MessageOf(SerializeModule(g, *store_).status()), "the name `\xff` is not UTF-8");
  g.node(0).origin = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
  ExpectRoundTrip(g);
  for (const char* bad :
       {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3", "\x80"}) {
    g.node(0).origin = bad;
    EXPECT_FALSE(SerializeModule(g, *store_).ok());
  }
}

TEST_F(WireTest, ForeignBytesAreErrors) {
  for (const std::string& bytes : {std::string(), std::string("x"), std::string("hello world"),
                                   std::string(1000, '\xff'), std::string(1000, '\0')}) {
    EXPECT_FALSE(ParseModule(bytes, *store_).ok());
  }
  EXPECT_EQ(ParseModule(std::string(kMaxModuleBytes + 1, '\0'), *store_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Field `number` with `contents`, length-delimited.
std::string Field(int number, const std::string& contents) {
  std::string bytes(1, static_cast<char>(number << 3 | 2));
  for (size_t size = contents.size(); true; size >>= 7) {
    bytes += static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0));
    if (size < 0x80) break;
  }
  return bytes + contents;
}

TEST_F(WireTest, BombsAreRefusedBeforeTheyAreParsed) {
  // Two bytes for each value.
  const std::string value = Field(2, "");
  std::string values;
  for (int i = 0; i < 2200000; ++i) values += value;
  const absl::Status many = ParseModule(Field(4, values), *store_).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(MessageOf(many).starts_with("the module has too many parts: byte ")) << many;

  std::string graph;
  for (int depth = 0; depth < 60; ++depth)
    graph = Field(3, Field(8, Field(9, graph)));  // node, attribute, graph
  const absl::Status deep = ParseModule(Field(4, graph), *store_).status();
  EXPECT_TRUE(MessageOf(deep).starts_with("the module nests too deeply: byte ")) << deep;
}

TEST_F(WireTest, ErrorsSayAtWhichByte) {
  EXPECT_EQ(MessageOf(ParseModule(Field(4, "") + "\x07", *store_).status()),
            "the module is not a protobuf message: byte 3 of it");
  EXPECT_EQ(MessageOf(ParseModule(Field(4, Field(1, "\xff")), *store_).status()),
            "the module has a name that is not UTF-8: byte 4 of it");
}

// Damaged messages give a graph or an error, and whatever is accepted is legal and goes round
// again.
TEST_F(WireTest, RandomDamage) {
  std::mt19937 random(5);
  int accepted = 0;
  for (const Graph& g : {testing::EverythingGraph(), testing::ImportedGraph(), Large(2000)}) {
    const std::string good = *SerializeModule(g, *store_);
    for (int round = 0; round < 1500; ++round) {
      std::string bytes = good;
      for (size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
        const size_t at = random() % bytes.size();
        if (random() % 3 == 0) {
          bytes.erase(at, 1 + random() % 4);
        } else {
          bytes[at] = static_cast<char>(random() % 2 == 0 ? random() : random() % 8);
        }
      }
      const absl::StatusOr<Graph> parsed = ParseModule(bytes, *store_);
      if (!parsed.ok()) continue;
      ++accepted;
      ASSERT_EQ(VerifyGraph(*parsed), absl::OkStatus());
      const absl::StatusOr<std::string> again = SerializeModule(*parsed, *store_);
      ASSERT_TRUE(again.ok()) << again.status();
      const absl::StatusOr<Graph> back = ParseModule(*again, *store_);
      ASSERT_TRUE(back.ok()) << back.status();
      ASSERT_EQ(FirstDifference(*parsed, *back), "");
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace quench::wire_test
