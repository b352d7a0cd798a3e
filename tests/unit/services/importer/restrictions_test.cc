// restrictions.def: what `quench ops` says that Quench does not take.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "common/ops/op.h"
#include "services/importer/importer.h"
#include "services/importer/onnx/convert.h"

namespace quench::importer::restrictions_test {
namespace {

// A reader of the table sees which rows are wishes.
TEST(OnnxOps, RowsSayWhetherTheCatalogueHasTheOperator) {
  for (const OnnxOp& row : AllOnnxOps()) {
    const bool has = row.canonical.empty() || ops::FindOp(std::string(row.canonical)) != nullptr;
    EXPECT_EQ(row.convert != nullptr, has)
        << row.name
        << (has ? ": the catalogue has it now, QUENCH_ONNX_OP" : ": QUENCH_ONNX_OP_MISSING");
  }
}

TEST(Restrictions, AreOfOperatorsThatAreRead) {
  size_t restricted = 0;
  for (const KnownOp& op : KnownOps()) {
    if (op.restrictions.empty()) continue;
    ++restricted;
    EXPECT_TRUE(op.supported) << op.name;
  }
  // Every row names an operator of onnx_ops.def, else its operator is not among those.
  size_t rows = 0;
  std::ifstream table(QUENCH_SOURCE_DIR "/services/importer/onnx/restrictions.def");
  for (std::string line; std::getline(table, line);) rows += line.starts_with("QUENCH_RESTRICTION");
  EXPECT_EQ(restricted, rows);
}

// Helpers that operators share, and the machinery around them. The users of a helper that may
// refuse are listed in ShareARefusal.
const std::set<std::string> kShared = {
    "bodies", "catalogue", "control",    "evaluate",         "helpers",     "infer",   "lower",
    "nest",   "op",        "conv_shape", "recurrent_common", "resize_plan", "constant"};

TEST(Restrictions, WhatAnOperatorRefusesHasARow) {
  const std::regex name(R"re(\.name = "([A-Za-z0-9]+)")re");
  size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(QUENCH_SOURCE_DIR "/common/ops")) {
    if (entry.path().extension() != ".cc" || kShared.contains(entry.path().stem().string()))
      continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const bool refuses = text.find("UnsupportedError(") != std::string::npos ||
                         text.find("AxesCount(") != std::string::npos ||
                         text.find("RankFromLength(") != std::string::npos;
    if (!refuses) continue;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), name);
         at != std::sregex_iterator(); ++at, ++seen) {
      EXPECT_FALSE(RestrictionsOf("", (*at)[1].str()).empty())
          << entry.path().filename() << " refuses something of " << (*at)[1].str();
    }
  }
  EXPECT_GE(seen, 15U);
}

TEST(Restrictions, ShareARefusal) {
  for (const char* op :
       {"Conv", "ConvInteger", "QLinearConv", "LSTM", "GRU", "RNN", "Resize", "Loop", "Scan",
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}) {
    EXPECT_FALSE(RestrictionsOf("", op).empty()) << op;
  }
}

}  // namespace
}  // namespace quench::importer::restrictions_test
