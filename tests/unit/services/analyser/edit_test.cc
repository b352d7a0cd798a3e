#include "services/analyser/edit.h"

#include <gtest/gtest.h>

#include "common/base/status.h"
#include "common/ir/metadata.h"
#include "common/ir/states.h"
#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "tests/support/graphs.h"
#include "tests/support/matchers.h"

namespace quench::analyser::edit_test {
namespace {

using ::quench::testing::HasSubstr;

Graph Parsed(const std::string& text) {
  Graph graph = ParseGraph(text).value();
  const absl::Status status = ops::InferGraph(graph);
  EXPECT_TRUE(status.ok()) << status;
  return graph;
}

Graph Network() {
  return Parsed(R"(quench.ir 1
module "net" canonical {
  symbol n = input(0, 0) in 1..64
  input %x: f32[n, 3]
  input %gate: f32[n, 2]
  const %w: f32[3, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  %h = MatMul(%x, %w) as "product" from "/fc/MatMul"
  %r = Relu(%h) as "relu"
  %m = Mul(%r, %gate) as "gating"
  %y = Softmax(%m) {axis = 1} as "softmax"
  output %y, %r
})");
}

absl::StatusOr<Tensor> NoFiles(const std::string& file, const std::string&) {
  return absl::NotFoundError("cannot open `" + file + "`");
}

absl::StatusOr<Edited> Apply(const Graph& graph, const std::string& script,
                             const EditTensors& tensors = NoFiles) {
  QUENCH_ASSIGN_OR_RETURN(const EditScript parsed, ParseEditScript(script, "s"));
  return EditGraph(graph, parsed, tensors);
}

// The edited module is what this text says, types and order of nodes included.
void ExpectEdited(const std::string& script, const std::string& expected) {
  const absl::StatusOr<Edited> edited = Apply(Network(), script);
  ASSERT_TRUE(edited.ok()) << script << ": " << edited.status();
  EXPECT_TRUE(VerifyGraph(edited->graph).ok()) << VerifyGraph(edited->graph);
  EXPECT_EQ(PrintGraph(edited->graph), PrintGraph(Parsed(expected))) << script;
}

void ExpectRefused(const std::string& script, const std::string& message) {
  const absl::StatusOr<Edited> edited = Apply(Network(), script);
  ASSERT_FALSE(edited.ok()) << script;
  EXPECT_EQ(std::string(edited.status().message()), message) << script;
}

TEST(EditTest, NodesAreReplacedByBlocks) {
  ExpectEdited(R"(replace relu, gating {   # by the names of the results that others need
  const %half: f32[] = [0.5]
  %r = Sigmoid(%h)
  %z: f32[n, 2] = Mul(%r, %half)
  %m = Add(%z, %gate) as "sum"
})",
               R"(quench.ir 1
module "net" canonical {
  symbol n = input(0, 0) in 1..64
  input %x: f32[n, 3]
  input %gate: f32[n, 2]
  const %w: f32[3, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  const %half: f32[] = [0.5]
  %h = MatMul(%x, %w) as "product" from "/fc/MatMul"
  %r = Sigmoid(%h)
  %z = Mul(%r, %half)
  %m = Add(%z, %gate) as "sum"
  %y = Softmax(%m) {axis = 1} as "softmax"
  output %y, %r
})");
}

TEST(EditTest, OneResultNeedsNoName) {
  const Edited edited = Apply(Network(), "replace softmax { %other = Tanh(%m) }").value();
  EXPECT_EQ(edited.graph.value(edited.graph.outputs[0]).name, "y");
  EXPECT_EQ(edited.graph.nodes.back().op, "Tanh");
  EXPECT_EQ(edited.report.changes, std::vector<std::string>{"`softmax` replaced by 1 node"});
}

TEST(EditTest, BlocksAreInsertedForAllReadersOrForSome) {
  const Graph all = Apply(Network(), "insert %r { %t = Neg(%r) }")->graph;
  EXPECT_EQ(all.value(all.outputs[1]).name, "r");  // outputs keep their names
  EXPECT_EQ(all.node(all.value(all.outputs[1]).producer).op, "Neg");
  const Graph one = Apply(Network(), "insert %r for gating { %t = Neg(%r) }")->graph;
  EXPECT_EQ(one.node(one.value(one.outputs[1]).producer).op, "Relu");
  EXPECT_EQ(one.value(one.nodes[3].inputs[0]).name, "t");
}

TEST(EditTest, NodesAreRemoved) {
  const Edited edited = Apply(Network(), "remove gating remove softmax").value();
  // `y` was an output, and so is `r`: one of them needs a node of its own.
  EXPECT_EQ(edited.report.changes[1], "`softmax` hands on `r`");
  EXPECT_EQ(testing::CountOps(edited.graph, "Identity"), 1);
  EXPECT_EQ(edited.graph.inputs.size(), 2u);  // inputs stay where nothing is cut
  const Graph with = Apply(Network(), "remove gating with %h")->graph;
  EXPECT_EQ(with.value(with.nodes.back().inputs[0]).name, "h");
}

TEST(EditTest, NamesAndWhatRefersToThem) {
  Graph graph = Apply(Network(), "input %x: f32[4, 3] input %gate: f32[4, 2]")->graph;
  graph.metadata[std::string(kStateKey) + "gate"] = "r";
  ASSERT_EQ(StatesOf(graph).size(), 1u);
  const Graph renamed = Apply(graph,
                              "rename %gate to %state rename %r to %next "
                              "rename \"/fc/MatMul\" to fc")
                            ->graph;
  ASSERT_EQ(StatesOf(renamed).size(), 1u);
  EXPECT_EQ(renamed.metadata.at(std::string(kStateKey) + "state"), "next");
  EXPECT_EQ(renamed.nodes[0].name, "fc");
}

TEST(EditTest, AttributesAreSetAndUnset) {
  const Graph graph = Apply(Network(), "set softmax {axis = 0}")->graph;
  EXPECT_EQ(graph.nodes.back().Int("axis", 7), 0);
  EXPECT_EQ(Apply(Network(), "unset softmax axis")->graph.nodes.back().Int("axis", 7), 7);
}

TEST(EditTest, ConstantsFromFilesAndFromTheScript) {
  const auto files = [](const std::string& file,
                        const std::string& array) -> absl::StatusOr<Tensor> {
    EXPECT_EQ(file, "w.npz");
    EXPECT_EQ(array, "fc");
    return testing::RandomTensor({3, 5}, 1);
  };
  const EditScript script =
      ParseEditScript(
          "constant %w = file \"w.npz\" \"fc\" constant %gate: f32[5] = [1, 2, 3, 4, 5]")
          .value();
  EXPECT_EQ(FilesOf(script), (std::set<std::pair<std::string, std::string>>{{"w.npz", "fc"}}));
  const Graph graph = EditGraph(Network(), script, files)->graph;
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.value(graph.outputs[0]).type.dims[1], Dim(5));
  const Graph made = Apply(Network(), "constant %h: f32[1, 2] = [1, 2]")->graph;
  EXPECT_EQ(testing::CountOps(made, "MatMul"), 0);
}

TEST(EditTest, ModulesAreCut) {
  const Edited head = Apply(Network(), "outputs %h").value();
  ASSERT_EQ(head.graph.inputs.size(), 1u);
  EXPECT_EQ(head.report.dropped, (std::vector<std::string>{"node `relu`", "node `gating`",
                                                           "node `softmax`", "input `gate`"}));
  const Edited tail = Apply(Network(), "input %m outputs %y").value();
  ASSERT_EQ(tail.graph.inputs.size(), 1u);
  const Type& type = tail.graph.value(tail.graph.inputs[0]).type;
  EXPECT_EQ(tail.graph.symbols->ToString(type.dims[0]), "n");  // as it was called before
  EXPECT_EQ(tail.graph.symbols->BoundsOf(type.dims[0]).max, 64);
  const Graph fixed = Apply(Network(), "input %x: f32[4, 3] input %gate: f32[1, 2]")->graph;
  EXPECT_EQ(fixed.value(fixed.outputs[0]).type, Type::Tensor(DataType::kF32, {4, 2}));
}

TEST(EditTest, BodiesAreEdited) {
  const Graph graph = Parsed(R"(quench.ir 1
module "if" canonical {
  input %c: bool[]
  input %x: f32[4]
  %y = If(%c, %x) {
    else_branch = graph "no" { input %a: f32[4] %p = Relu(%a) output %p },
    then_branch = graph "yes" { input %b: f32[4] %q = Exp(%b) %s = Neg(%q) output %s }
  }
  output %y
})");
  const Graph edited = Apply(graph, "in y then_branch { replace q { %z = Tanh(%b) } }")->graph;
  EXPECT_EQ(edited.nodes[0].Body("then_branch")->nodes[0].op, "Tanh");
  EXPECT_EQ(edited.nodes[0].Body("else_branch")->nodes[0].op, "Relu");
  EXPECT_THAT(Apply(graph, "in y then_branch { input %q }").status().ToString(),
              HasSubstr("s:1:20: the inputs of a body are those of its node"));
  EXPECT_THAT(Apply(graph, "in y body { }").status().ToString(),
              HasSubstr("node `y` (If) has no body `body`"));
}

TEST(EditTest, WhatCannotBeAppliedIsNamedAllAtOnce) {
  ExpectRefused("remove nothere\nrename %x to %w\n  rename relu to gating\nunset relu axis",
                "s:1:1: no node is named `nothere` (`quench nodes` lists them)\n"
                "s:2:1: there is a value `w` already\n"
                "s:3:3: there is a node `gating` already\n"
                "s:4:1: node `relu` has no attribute `axis`");
  ExpectRefused("replace relu, gating { %q = Exp(%h) }",
                "s:1:1: others need `r`, `m`, which the block does not define");
  ExpectRefused("replace relu { %r = Exp(%y) }",
                "s:1:1: node `gating` would need a result of its own");
  ExpectRefused("replace relu { %r = Exp(%r) }", "s:1:25: the node takes its own output");
  ExpectRefused("add { %x = Exp(%h) }", "s:1:7: value `x` is already defined");
  ExpectRefused("insert %h for softmax { %t = Neg(%h) }",
                "s:1:1: node `softmax` does not read `h`");
  ExpectRefused("insert %h { }",
                "s:1:1: the block has no last node with a result to read in the place of `h`");
  ExpectRefused("constant %y: f32[] = [1]",
                "s:1:1: `y` is an output, and cannot become a constant");
  ExpectRefused("constant %w = file \"no.npy\"", "s:1:1: cannot open `no.npy`");
  ExpectRefused("outputs %x", "s:1:1: `x` is not the result of a node");
  ExpectRefused("outputs %y, %y", "s:1:1: `y` is named twice");
  ExpectRefused("input %h: f32[k, 2]", "s:1:15: size `k`, character 1: there is no symbol `k`");
}

TEST(EditTest, TypesThatBreakNameTheirNodes) {
  ExpectRefused(
      "constant %w: f32[2] = [1, 2]",
      "node `product` (MatMul): columns of a and rows of b are 3 and 2, they must be equal");
  EXPECT_THAT(Apply(Network(), "set relu {alpha = 1.0}").status().ToString(),
              HasSubstr("node `relu` (Relu): unknown attribute `alpha`"));
  EXPECT_THAT(Apply(Network(), "replace relu { %r = Nonsense(%h) }").status().ToString(),
              HasSubstr("Nonsense"));
  Graph imported = Network();
  imported.stage = Stage::kImported;
  EXPECT_THAT(Apply(imported, "").status().ToString(), HasSubstr("stage `imported`"));
}

TEST(EditTest, ScriptsThatAreNoneAreRefused) {
  const auto refused = [](const std::string& script) {
    return std::string(ParseEditScript(script, "s").status().message());
  };
  EXPECT_EQ(
      refused("delete relu"),
      "s:1:1: a statement begins with one of replace, insert, add, remove, rename, set, unset, "
      "constant, input, outputs, in");
  EXPECT_EQ(refused("replace relu {"), "s:1:14: the bracket is never closed");
  EXPECT_EQ(refused("replace relu"), "s:1:13: `{` was expected");
  EXPECT_EQ(refused("rename %a b"), "s:1:11: `to` was expected, not `b`");
  EXPECT_EQ(refused("in y body { remove x"), "s:1:11: the bracket is never closed");
  EXPECT_EQ(refused("constant %w = file \"\""), "s:1:20: a file has a name");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "in a b {";
  EXPECT_THAT(refused(deep), HasSubstr("bodies nest deeper than 32"));
  EXPECT_THAT(refused(std::string(kMostEditBytes + 1, ' ')), HasSubstr("at most 1048576 are read"));
}

}  // namespace
}  // namespace quench::analyser::edit_test
