// Archives of torch.export, written here: what they become, and what is said of bad ones.
#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_export_test {
namespace {

using namespace testing::pickle;  // NOLINT: a vocabulary
using testing::BytesOf;
using testing::ErrorOf;
using testing::HasSubstr;
using testing::ZipEntry;
using testing::ZipOf;

std::string TensorArgument(const std::string& name) {
  return R"({"as_tensor": {"name": ")" + name + "\"}}";
}

std::string Given(const std::string& name, const std::string& argument) {
  return R"({"name": ")" + name + R"(", "kind": 1, "arg": )" + argument + "}";
}

std::string Node(const std::string& target, const std::string& inputs, const std::string& output) {
  return R"({"target": "torch.ops.)" + target + R"(", "inputs": [)" + inputs +
         R"(], "outputs": [)" + TensorArgument(output) + R"(], "metadata": {}})";
}

// A graph of one input `x` of f32 [s0, 2] and the weight `w`, a buffer or a parameter.
std::string ExportedJson(const std::string& nodes, const std::string& outputs,
                         const std::string& output_specs, bool buffer = false,
                         const std::string& ranges = "{}") {
  const std::string sizes =
      R"([{"as_expr": {"expr_str": "s0", "hint": {"as_int": 3}}}, {"as_int": 2}])";
  const std::string kind = buffer ? "buffer" : "parameter";
  return R"({"graph_module": {"graph": {"inputs": [)" + TensorArgument("p_w") + "," +
         TensorArgument("x") + R"(], "outputs": [)" + outputs + R"(], "nodes": [)" + nodes +
         R"(], "tensor_values": {"x": {"dtype": 7, "sizes": )" + sizes +
         R"(}}}, "signature": {"input_specs": [{")" + kind + R"(": {"arg": {"name": "p_w"}, ")" +
         kind + R"(_name": "net.w"}}, {"user_input": {"arg": )" + TensorArgument("x") +
         R"(}}], "output_specs": [)" + output_specs + R"(]}}, "range_constraints": )" + ranges +
         R"(, "schema_version": {"major": 8, "minor": 1}})";
}

// As the newest torch has it.
std::string Exported(const std::string& nodes, const std::string& outputs,
                     const std::string& output_specs, bool buffer = false,
                     const std::string& ranges = "{}") {
  const std::string config =
      R"({"config": {"net.w": {"path_name": "weight_0", "is_param": true, "use_pickle": false, )"
      R"("tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "strides": [{"as_int": 1}], )"
      R"("storage_offset": {"as_int": 0}}}}})";
  return ZipOf({{"p/models/model.json", ExportedJson(nodes, outputs, output_specs, buffer, ranges)},
                {"p/archive_format", "pt2"},
                {"p/data/weights/weight_0", BytesOf({10, 20})},
                {"p/data/weights/model_weights_config.json", config}});
}

const std::string kUserOutput = R"({"user_output": {"arg": {}}})";

TEST_F(TorchTest, ExportedGraph) {
  const std::string nodes =
      Node("aten.add.Tensor",
           Given("self", TensorArgument("x")) + "," + Given("other", TensorArgument("p_w")),
           "add") +
      "," + Node("aten.relu_.default", Given("self", TensorArgument("add")), "relu_");
  const std::string file = Exported(nodes, TensorArgument("add"), kUserOutput);
  // Written in place: `add` is what `relu_` made of it.
  EXPECT_EQ(Run(file, {Values({2, 2}, {1, 2, -30, -40})}), (std::vector<Floats>{{11, 22, 0, 0}}));
  const auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->canonical.symbols->ToString(
                imported->canonical.value(imported->canonical.inputs[0]).type.dims[0]),
            "s0");
}

TEST_F(TorchTest, NodesAreNamedAfterTheModulesThatTheyAreOf) {
  const auto node = [](const std::string& target, const std::string& inputs,
                       const std::string& output, const std::string& stack) {
    return R"({"target": "torch.ops.aten.)" + target + R"(", "inputs": [)" + inputs +
           R"(], "outputs": [)" + TensorArgument(output) +
           R"(], "metadata": {"nn_module_stack": ")" + stack + "\"}}";
  };
  const std::string outer = "L__self__,,__main__.M;L__self__a,a,__main__.A";
  const std::string inner = outer + ";L__self__a.seq.1,a.seq.1,torch.nn.modules.activation.ReLU";
  const std::string again =
      outer + ";L__self__a.seq.1@1,a.seq.1@1,torch.nn.modules.activation.ReLU";
  const std::string nodes =
      node("relu.default", Given("self", TensorArgument("x")), "relu", inner) + "," +
      node("neg.default", Given("self", TensorArgument("relu")), "neg", outer) + "," +
      node("relu.default", Given("self", TensorArgument("neg")), "relu_1", again) + "," +
      node("neg.default", Given("self", TensorArgument("relu_1")), "neg_1",
           "L__self__,,__main__.M") +
      "," + node("exp.default", Given("self", TensorArgument("neg_1")), "exp", "damaged");
  const auto imported = ImportFile(Exported(nodes, TensorArgument("exp"), kUserOutput), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<std::string> names;
  for (const ::quench::Node& each : imported->canonical.nodes) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a/seq/1/relu/Relu", "a/neg/Neg",
                                             "a/seq/1/relu_1/Relu", "neg_1/Neg", "exp/Exp"}));
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "exp");
}

// Archives of torch 2.1 to 2.6: weights are an archive of torch.save within the archive.
TEST_F(TorchTest, ExportedByOlderTorch) {
  const std::string nodes =
      Node("aten.add.Tensor",
           Given("self", TensorArgument("x")) + "," + Given("other", TensorArgument("p_w")), "add");
  const std::string weights = ZipOf({{"archive/data.pkl", File(Dict({{"net.w", F32("0", {2})}}))},
                                     {"archive/data/0", BytesOf({10, 20})}});
  const std::string file = ZipOf({{"serialized_exported_program.json",
                                   ExportedJson(nodes, TensorArgument("add"), kUserOutput)},
                                  {"serialized_state_dict.pt", weights},
                                  {"version", "5.3"}});
  EXPECT_EQ(Run(file, {Values({1, 2}, {1, 2})}), (std::vector<Floats>{{11, 22}}));
}

// Archives of torch 2.1: every argument has all kinds, and the signature is tables of names.
TEST_F(TorchTest, ExportedBySchema1) {
  const auto tensor = [](const std::string& name) {
    return R"({"as_none": null, "as_bool": null, "as_int": null, "as_tensor": {"name": ")" + name +
           R"("}, "as_float": null})";
  };
  const std::string infinite =
      R"({"as_none": null, "as_bool": null, "as_tensor": null, "as_float": -Infinity})";
  const auto node = [&](const std::string& target, const std::string& inputs,
                        const std::string& output) {
    return R"({"target": "torch.ops.aten.)" + target + R"(", "inputs": [)" + inputs +
           R"(], "outputs": [)" + tensor(output) + R"(], "metadata": {"note": "a \"-Infinity"}})";
  };
  const std::string nodes =
      node("add.Tensor", Given("self", tensor("arg0_1")) + "," + Given("other", tensor("arg1_1")),
           "add") +
      "," +
      node("mul.Tensor", Given("self", tensor("add")) + "," + Given("other", tensor("arg2_1")),
           "mul") +
      "," +
      node("clamp.default", Given("self", tensor("mul")) + "," + Given("min", infinite), "clamp");
  const std::string json =
      R"({"graph_module": {"graph": {"inputs": [)" + tensor("arg0_1") + "," + tensor("arg1_1") +
      "," + tensor("arg2_1") + R"(], "outputs": [)" + tensor("add") + "," + tensor("clamp") +
      R"(], "nodes": [)" + nodes +
      R"(], "tensor_values": {"arg2_1": {"meta": {"dtype": 7, "sizes": [{"as_int": 2, "as_expr": null}]}}}},)"
      R"( "signature": {"inputs_to_parameters": {"arg1_1": "w"}, "inputs_to_buffers": )"
      R"({"arg0_1": "n"}, "user_inputs": ["arg2_1"], "user_outputs": ["clamp"], )"
      R"("buffers_to_mutate": {"add": "n"}, "backward_signature": null}}, "schema_version": 1})";
  const std::string weights =
      ZipOf({{"archive/data.pkl", File(Dict({{"w", F32("0", {2})}, {"n", F32("1", {2})}}))},
             {"archive/data/0", BytesOf({1, 2})},
             {"archive/data/1", BytesOf({0, 0})}});
  const std::string file = ZipOf({{"serialized_exported_program.json", json},
                                  {"serialized_state_dict.json", weights},
                                  {"version", "1"}});
  EXPECT_EQ(Run(file, {Values({2}, {10, 20}), Values({2}, {3, 4})}),
            (std::vector<Floats>{{40, 120}, {4, 6}}));
  const auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->canonical.metadata.at("state.n"), "n/next");
}

TEST_F(TorchTest, ExportedRanges) {
  const std::string nodes = Node("aten.neg.default", Given("self", TensorArgument("x")), "y");
  const std::string file = Exported(nodes, TensorArgument("y"), kUserOutput, false,
                                    R"({"s0": {"min_val": 2, "max_val": 64}})");
  const auto bounds_of = [](const absl::StatusOr<Imported>& imported) {
    const Graph& graph = imported->canonical;
    const Bounds bounds = graph.symbols->BoundsOf(graph.value(graph.inputs[0]).type.dims[0]);
    return std::pair(bounds.min, bounds.max);
  };
  const auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(bounds_of(imported), (std::pair<int64_t, int64_t>(2, 64)));
  EXPECT_THAT(WarningsOf(imported->canonical), testing::IsEmpty());
  // Narrower is fine, and wider is the caller's word against the exporter's.
  ImportOptions options;
  options.dims["s0"] = {4, 8};
  const auto narrow = ImportFile(file, options);
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(bounds_of(narrow), (std::pair<int64_t, int64_t>(4, 8)));
  EXPECT_THAT(WarningsOf(narrow->canonical), testing::IsEmpty());
  options.dims["s0"] = {1, 8};
  const auto wide = ImportFile(file, options);
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_THAT(WarningsOf(wide->canonical),
              testing::ElementsAre(HasSubstr("exported for sizes 2..64")));
  // Without an end.
  const auto endless =
      ImportFile(Exported(nodes, TensorArgument("y"), kUserOutput, false,
                          R"({"s0": {"min_val": 0, "max_val": 9223372036854775806}})"),
                 {});
  ASSERT_TRUE(endless.ok()) << endless.status();
  EXPECT_EQ(bounds_of(endless), (std::pair<int64_t, int64_t>(1, kUnbounded)));
}

TEST_F(TorchTest, ExportedStates) {
  const std::string nodes =
      Node("aten.add_.Tensor",
           Given("self", TensorArgument("p_w")) + "," + Given("other", R"({"as_float": 1.0})"),
           "w_next") +
      "," +
      Node("aten.mul.Tensor",
           Given("self", TensorArgument("x")) + "," + Given("other", TensorArgument("w_next")),
           "y");
  const std::string file = Exported(nodes, TensorArgument("y"), kUserOutput, true);
  EXPECT_EQ(Run(file, {Values({1, 2}, {2, 3}), Values({2}, {4, 5})}),
            (std::vector<Floats>{{10, 18}, {5, 6}}));
  const auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->canonical.metadata.at("state.net.w"), "net.w/next");
}

// A graph of inputs alone: `tensors` are names and sizes in JSON, of f32.
std::string ExportedOfInputs(const Fields& tensors, const std::string& nodes,
                             const std::string& outputs, const std::string& output_specs,
                             const std::string& ranges = "{}") {
  std::string arguments, types, specs;
  for (const auto& [name, sizes] : tensors) {
    const std::string comma = arguments.empty() ? "" : ", ";
    arguments += comma + TensorArgument(name);
    types += comma + "\"" + name + R"(": {"dtype": 7, "sizes": )" + sizes + "}";
    specs += comma + R"({"user_input": {"arg": )" + TensorArgument(name) + "}}";
  }
  return ZipOf({{"p/models/model.json",
                 R"({"graph_module": {"graph": {"inputs": [)" + arguments + R"(], "outputs": [)" +
                     outputs + R"(], "nodes": [)" + nodes + R"(], "tensor_values": {)" + types +
                     R"(}}, "signature": {"input_specs": [)" + specs + R"(], "output_specs": [)" +
                     output_specs + R"(]}}, "range_constraints": )" + ranges + "}"},
                {"p/archive_format", "pt2"},
                {"p/data/weights/model_weights_config.json", R"({"config": {}})"}});
}

std::string Sizes(const std::vector<std::string>& texts) {
  std::string sizes;
  for (const std::string& text : texts) {
    const bool number = text.find_first_not_of("0123456789") == std::string::npos;
    sizes += sizes.empty() ? "" : ", ";
    sizes += number ? R"({"as_int": )" + text + "}"
                    : R"({"as_expr": {"expr_str": ")" + text + R"(", "hint": {"as_int": 4}}})";
  }
  return "[" + sizes + "]";
}

std::string InputText(const absl::StatusOr<Imported>& imported, size_t input) {
  const Graph& graph = imported->canonical;
  std::string text;
  for (const Dim dim : graph.value(graph.inputs[input]).type.dims)
    text += (text.empty() ? "" : ", ") + graph.symbols->ToString(dim);
  return text;
}

std::vector<std::string> OutputNames(const absl::StatusOr<Imported>& imported) {
  std::vector<std::string> names;
  for (const ValueId id : imported->canonical.outputs)
    names.push_back(imported->canonical.value(id).name);
  return names;
}

// An input that the model writes to is the caller's: what it is then follows the model's own outputs.
TEST_F(TorchTest, ExportedInputsThatAreWrittenTo) {
  const std::string nodes =
      Node("aten.add.Tensor",
           Given("self", TensorArgument("cache")) + "," + Given("other", TensorArgument("x")),
           "add") +
      "," +
      Node("aten.mul.Tensor",
           Given("self", TensorArgument("add")) + "," + Given("other", TensorArgument("x")), "y");
  const std::string mutation =
      R"({"user_input_mutation": {"arg": {"name": "add"}, "user_input_name": "cache"}})";
  const Fields inputs = {{"x", Sizes({"2"})}, {"cache", Sizes({"2"})}};
  const std::string file =
      ExportedOfInputs(inputs, nodes, TensorArgument("add") + "," + TensorArgument("y"),
                       mutation + "," + kUserOutput);
  EXPECT_EQ(Run(file, {Values({2}, {2, 3}), Values({2}, {4, 5})}),
            (std::vector<Floats>{{12, 24}, {6, 8}}));
  auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(OutputNames(imported), testing::ElementsAre("y", "cache/next"));
  EXPECT_FALSE(imported->canonical.metadata.contains("state.cache"));
  ImportOptions options;
  options.outputs = {"y"};
  EXPECT_EQ(Run(file, {Values({2}, {2, 3}), Values({2}, {4, 5})}, options),
            (std::vector<Floats>{{12, 24}}));
  EXPECT_THAT(StatesOf(imported->canonical), testing::IsEmpty());

  // Graphs that are not functional write in place, and their signatures say nothing of it.
  const std::string in_place =
      Node("aten.add_.Tensor",
           Given("self", TensorArgument("cache")) + "," + Given("other", TensorArgument("x")),
           "add_") +
      "," +
      Node("aten.mul.Tensor",
           Given("self", TensorArgument("add_")) + "," + Given("other", TensorArgument("x")), "y");
  const std::string training = ExportedOfInputs(inputs, in_place, TensorArgument("y"), kUserOutput);
  EXPECT_EQ(Run(training, {Values({2}, {2, 3}), Values({2}, {4, 5})}),
            (std::vector<Floats>{{12, 24}, {6, 8}}));
  imported = ImportFile(training, {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(OutputNames(imported), testing::ElementsAre("y", "cache/next"));
}

TEST_F(TorchTest, ExportedGraphsAreCut) {
  const std::string nodes =
      Node("aten.neg.default", Given("self", TensorArgument("x")), "a") + "," +
      Node("aten.exp.default", Given("self", TensorArgument("a")), "b") + "," +
      Node("aten.cholesky.default", Given("self", TensorArgument("b")), "y");
  const std::string file =
      ExportedOfInputs({{"x", Sizes({"2"})}}, nodes, TensorArgument("y"), kUserOutput);
  ImportOptions options;
  options.outputs = {"a"};
  EXPECT_EQ(Run(file, {Values({2}, {2, 3})}, options), (std::vector<Floats>{{-2, -3}}));
  auto imported = ImportFile(file, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(OutputNames(imported), testing::ElementsAre("a"));
  EXPECT_EQ(imported->imported.nodes.size(), 1U);
  options.outputs = {"b", "a"};
  imported = ImportFile(file, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(OutputNames(imported), testing::ElementsAre("b", "a"));
  options.outputs = {"y"};
  EXPECT_THAT(ErrorOf(ImportFile(file, options).status()), HasSubstr("cholesky"));
  options.outputs = {"a", "none", "nor"};
  const std::string error = ErrorOf(ImportFile(file, options).status());
  EXPECT_THAT(error, HasSubstr("cut at `none`, which is not a value of it"));
  EXPECT_THAT(error, HasSubstr("cut at `nor`"));
}

TEST_F(TorchTest, ExportedOutputsOfOtherKinds) {
  const std::string nodes = Node("aten.neg.default", Given("self", TensorArgument("x")), "y");
  const Fields inputs = {{"x", Sizes({"2"})}};
  const auto file = [&](const std::string& spec) {
    return ExportedOfInputs(inputs, nodes, TensorArgument("y") + "," + TensorArgument("y"),
                            spec + "," + kUserOutput);
  };
  EXPECT_THAT(ErrorOf(ImportFile(file(R"({"user_input_mutation": {"arg": {"name": "y"}, )"
                                      R"("user_input_name": "z"}})"),
                                 {})
                          .status()),
              HasSubstr("writes to `z`, which is none of its inputs"));
  EXPECT_THAT(ErrorOf(ImportFile(file(R"({"loss_output": {"arg": {"name": "y"}}})"), {}).status()),
              HasSubstr("output `y` is a `loss_output`"));
  EXPECT_TRUE(ImportFile(file(R"({"token": {"arg": {"name": "y"}}})"), {}).ok());
}

// As torch up to 2.6 writes expressions, and as the newest does.
TEST_F(TorchTest, ExportedSizesAreTied) {
  const std::string nodes = Node("aten.neg.default", Given("self", TensorArgument("x")), "y");
  const std::string ranges = R"({"s0": {"min_val": 2, "max_val": 64}})";
  const std::string symbol = "Symbol('s0', positive=True, integer=True)";
  const auto import = [&](const std::string& of_x, const std::string& of_y,
                          const ImportOptions& options = {}) {
    return ImportFile(ExportedOfInputs({{"x", Sizes({of_x, "2"})}, {"y", Sizes({of_y})}}, nodes,
                                       TensorArgument("y"), kUserOutput, ranges),
                      options);
  };
  const std::tuple<std::string, std::string, std::string, std::string> cases[] = {
      {symbol, symbol, "s0, 2", "s0"},
      {"2*s0", "s0", "2*s0, 2", "s0"},
      {"s0", "s0 + 1", "s0, 2", "s0 + 1"},
      {"s0**2 - 1", "s0", "s0*s0 - 1, 2", "s0"},
      {"(s0//2)", "s0", "floordiv(s0, 2), 2", "s0"},
      {"Max(4, Mod(s0, 8))", "s0", "max(mod(s0, 8), 4), 2", "s0"},
      {"Mul(Integer(2), " + symbol + ")", symbol, "2*s0, 2", "s0"},
      {"Mul(Rational(1, 2), Add(" + symbol + ", Integer(3)))", symbol, "floordiv(s0 + 1, 2) + 1, 2",
       "s0"},
      {"Mul(Integer(-1), Pow(" + symbol + ", Integer(2)), Integer(-3))", symbol, "3*s0*s0, 2",
       "s0"},
      {"FloorDiv(" + symbol + ", Integer(2))", symbol, "floordiv(s0, 2), 2", "s0"},
      // The symbol alone is not an input's size: that of `x` makes it.
      {"2*s0", "2*s0", "x_d0, 2", "x_d0"},
      {"2*s0", "3*s0", "x_d0, 2", "3*floordiv(x_d0, 2)"},
      {"s0 + 1", "s0 - 1", "x_d0, 2", "x_d0 - 2"}};
  for (const auto& [of_x, of_y, x, y] : cases) {
    const auto imported = import(of_x, of_y);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(InputText(imported, 0), x) << of_x;
    EXPECT_EQ(InputText(imported, 1), y) << of_y;
    EXPECT_THAT(WarningsOf(imported->canonical), testing::IsEmpty());
  }
  const auto bounds_of = [](const absl::StatusOr<Imported>& imported, size_t input) {
    const Graph& graph = imported->canonical;
    const Bounds bounds = graph.symbols->BoundsOf(graph.value(graph.inputs[input]).type.dims[0]);
    return std::pair(bounds.min, bounds.max);
  };
  using Range = std::pair<int64_t, int64_t>;
  EXPECT_EQ(bounds_of(import(symbol, symbol), 0), Range(2, 64));
  EXPECT_EQ(bounds_of(import("2*s0", "s0"), 0), Range(4, 128));
  const auto own = import("2*s0", "2*s0");
  EXPECT_EQ(bounds_of(own, 0), Range(4, 128));
  EXPECT_TRUE(own->canonical.symbols->IsMultipleOf(
      own->canonical.value(own->canonical.inputs[0]).type.dims[0], 2));

  // A size that is given says what the others are.
  ImportOptions options = Shape("x", {6, 2});
  EXPECT_EQ(InputText(import("2*s0", "s0", options), 1), "3");
  EXPECT_EQ(InputText(import("s0", "2*s0", options), 1), "12");
  EXPECT_THAT(ErrorOf(import("4*s0", "s0", options).status()),
              HasSubstr("input `x` is given the size 6 at axis 0, which `4*s0` cannot be"));
  EXPECT_THAT(ErrorOf(import("Mul(" + symbol + ", Integer(4))", symbol, options).status()),
              HasSubstr("which `4*s0` cannot be"));
  options.shapes["y"] = {4};
  EXPECT_THAT(ErrorOf(import("2*s0", "s0", options).status()), HasSubstr("both 3 and 4"));
}

TEST_F(TorchTest, ExportedSizesThatAreNotTied) {
  const std::string nodes = Node("aten.neg.default", Given("self", TensorArgument("x")), "z");
  const auto import = [&](const std::string& of_x, const std::string& of_y) {
    return ImportFile(ExportedOfInputs({{"x", Sizes({of_x})}, {"y", Sizes({of_y})}}, nodes,
                                       TensorArgument("z"), kUserOutput),
                      {});
  };
  for (const std::string size : {"s0*s1", "SomeFunction(s0)", "2*s0 +", "s0 + s1"}) {
    const auto imported = import(size, size);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(InputText(imported, 0), "x_d0") << size;
    EXPECT_EQ(InputText(imported, 1), "x_d0") << size;
    EXPECT_THAT(WarningsOf(imported->canonical),
                testing::ElementsAre(HasSubstr("size `" + size + "` of input `x`")));
  }
  // Deep ones neither.
  const std::string deep = std::string(2000, '(') + "s0" + std::string(2000, ')');
  EXPECT_TRUE(import(deep, "s0").ok());
}

// A run checks what is tied.
TEST_F(TorchTest, ExportedSizesAreChecked) {
  const std::string nodes = Node("aten.neg.default", Given("self", TensorArgument("x")), "z");
  const std::string file = ExportedOfInputs({{"x", Sizes({"2*s0"})}, {"y", Sizes({"s0"})}}, nodes,
                                            TensorArgument("z"), kUserOutput);
  EXPECT_EQ(Run(file, {Values({4}, {1, 2, 3, 4}), Values({2}, {0, 0})}),
            (std::vector<Floats>{{-1, -2, -3, -4}}));
  const auto imported = ImportFile(file, {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::vector<Tensor> wrong = {Values({3}, {1, 2, 3}), Values({2}, {0, 0})};
  EXPECT_THAT(ErrorOf(ops::Evaluate(imported->canonical, wrong).status()),
              HasSubstr("input `x` axis 0 is 3, `2*s0` is 4"));
}

// Archives of torch 2.1: an LSTM is a call of oneDNN's kernel for each layer and direction.
TEST_F(TorchTest, ExportedMkldnnRnnLayer) {
  constexpr int kSteps = 3, kInputs = 2, kHidden = 2;
  const auto call = [](const std::string& reverse, int64_t mode, bool biases) {
    const auto number = [](const char* name, int64_t value) {
      return "," + Given(name, R"({"as_int": )" + std::to_string(value) + "}");
    };
    const auto flag = [](const char* name, const std::string& value) {
      return "," + Given(name, R"({"as_bool": )" + value + "}");
    };
    std::string given = Given("input", TensorArgument("x"));
    for (const char* name : {"weight0", "weight1", "weight2", "weight3", "hx_", "cx_"})
      given += "," + Given(name, TensorArgument(name));
    given += flag("reverse", reverse) + "," + Given("batch_sizes", R"({"as_ints": []})") +
             number("mode", mode) + number("hidden_size", kHidden) + number("num_layers", 1) +
             flag("has_biases", biases ? "true" : "false") + flag("bidirectional", "false") +
             flag("batch_first", "false") + flag("train", "false");
    return R"({"target": "torch.ops.aten.mkldnn_rnn_layer.default", "inputs": [)" + given +
           R"(], "outputs": [)" + TensorArgument("y") + "," + TensorArgument("h") + "," +
           TensorArgument("c") + "," + TensorArgument("workspace") + R"(], "metadata": {}})";
  };
  const Fields tensors = {{"x", Sizes({"3", "1", "2"})},  {"weight0", Sizes({"8", "2"})},
                          {"weight1", Sizes({"8", "2"})}, {"weight2", Sizes({"8"})},
                          {"weight3", Sizes({"8"})},      {"hx_", Sizes({"1", "1", "2"})},
                          {"cx_", Sizes({"1", "1", "2"})}};
  const auto file = [&](const std::string& reverse, int64_t mode, bool biases) {
    return ExportedOfInputs(
        tensors, call(reverse, mode, biases),
        TensorArgument("y") + "," + TensorArgument("h") + "," + TensorArgument("c"),
        kUserOutput + "," + kUserOutput + "," + kUserOutput);
  };
  const auto values = [](std::vector<int64_t> dims, float scale) {
    Floats all;
    for (int64_t i = 0; i < *ElementCount(dims); ++i)
      all.push_back(scale * std::sin(static_cast<float>(3 * i + 1)));
    return Values(std::move(dims), all);
  };
  const std::vector<Tensor> inputs = {
      values({kSteps, 1, kInputs}, 1),      values({4 * kHidden, kInputs}, 0.5F),
      values({4 * kHidden, kHidden}, 0.7F), values({4 * kHidden}, 0.3F),
      values({4 * kHidden}, 0.2F),          values({1, 1, kHidden}, 0.9F),
      values({1, 1, kHidden}, 0.8F)};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const bool reverse : {false, true}) {
    for (const bool biases : {false, true}) {
      // Gates in PyTorch's order: input, forget, cell, output.
      std::vector<double> h(kHidden), c(kHidden), y(kSteps * kHidden);
      for (int i = 0; i < kHidden; ++i) {
        h[i] = inputs[5].FloatAt(i);
        c[i] = inputs[6].FloatAt(i);
      }
      for (int step = 0; step < kSteps; ++step) {
        const int t = reverse ? kSteps - 1 - step : step;
        std::vector<double> gates(4 * kHidden);
        for (int g = 0; g < 4 * kHidden; ++g) {
          gates[g] = biases ? inputs[3].FloatAt(g) + inputs[4].FloatAt(g) : 0;
          for (int i = 0; i < kInputs; ++i)
            gates[g] += inputs[1].FloatAt(g * kInputs + i) * inputs[0].FloatAt(t * kInputs + i);
          for (int i = 0; i < kHidden; ++i) gates[g] += inputs[2].FloatAt(g * kHidden + i) * h[i];
        }
        for (int i = 0; i < kHidden; ++i) {
          c[i] = sigmoid(gates[kHidden + i]) * c[i] +
                 sigmoid(gates[i]) * std::tanh(gates[2 * kHidden + i]);
          h[i] = sigmoid(gates[3 * kHidden + i]) * std::tanh(c[i]);
          y[t * kHidden + i] = h[i];
        }
      }
      const std::vector<Floats> got = Run(file(reverse ? "true" : "false", 2, biases), inputs);
      ASSERT_EQ(got.size(), 3U);
      const std::vector<double>* wanted[] = {&y, &h, &c};
      for (size_t output = 0; output < 3; ++output) {
        ASSERT_EQ(got[output].size(), wanted[output]->size());
        for (size_t i = 0; i < got[output].size(); ++i)
          EXPECT_NEAR(got[output][i], (*wanted[output])[i], 1e-5) << output << " at " << i;
      }
    }
  }
  EXPECT_THAT(ErrorOf(ImportFile(file("false", 3, true), {}).status()), HasSubstr("mode 3 (GRU)"));
}

TEST_F(TorchTest, ExportedConditions) {
  const auto branch = [](const std::string& target) {
    return R"({"as_graph": {"name": "g", "graph": {"inputs": [)" + TensorArgument("a") +
           R"(], "outputs": [)" + TensorArgument("b") + R"(], "nodes": [)" +
           Node("aten." + target, Given("self", TensorArgument("a")), "b") +
           R"(], "tensor_values": {}}}})";
  };
  const std::string nodes =
      Node("aten.sum.default", Given("self", TensorArgument("x")), "sum") + "," +
      Node("aten.gt.Scalar",
           Given("self", TensorArgument("sum")) + "," + Given("other", R"({"as_int": 0})"), "gt") +
      "," +
      Node("higher_order.cond",
           Given("", TensorArgument("gt")) + "," + Given("", branch("neg.default")) + "," +
               Given("", branch("relu.default")) + "," +
               Given("", R"({"as_tensors": [{"name": "x"}]})"),
           "y");
  const std::string file = Exported(nodes, TensorArgument("y"), kUserOutput);
  EXPECT_EQ(Run(file, {Values({1, 2}, {-1, 3})}), (std::vector<Floats>{{1, -3}}));
  EXPECT_EQ(Run(file, {Values({1, 2}, {-4, 3})}), (std::vector<Floats>{{0, 3}}));
}

// Parts of the JSON that are of another kind than they should be.
TEST_F(TorchTest, ExportsOfTheWrongShape) {
  const std::string node = Node("aten.neg.default", Given("self", TensorArgument("x")), "y");
  const std::string good = ExportedJson(node, TensorArgument("y"), kUserOutput);
  const std::pair<std::string, std::string> edits[] = {
      {R"("outputs": [)" + TensorArgument("y") + R"(], "metadata")", R"("outputs": 5, "metadata")"},
      {R"("outputs": [)" + TensorArgument("y") + R"(], "metadata")",
       R"("outputs": {"a": 1}, "metadata")"},
      {R"("output_specs": [)" + kUserOutput + "]", R"("output_specs": {"a": 1})"},
      {R"("nodes": [)", R"("nodes": 3, "other": [)"},
      {R"("sizes": [)", R"("sizes": 3, "other": [)"},
      {R"("as_int": 2)", R"("as_int": -2)"},
      {R"("input_specs": [)", R"("input_specs": 3, "other": [)"},
      {R"("dtype": 7)", R"("dtype": 99)"}};
  for (const auto& [from, to] : edits) {
    std::string json = good;
    const size_t at = json.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    json.replace(at, from.size(), to);
    const std::string file = ZipOf(
        {{"serialized_exported_program.json", json},
         {"serialized_state_dict.pt", ZipOf({{"a/data.pkl", File(Dict({{"net.w", F32("0", {2})}}))},
                                             {"a/data/0", BytesOf({1, 2})}})}});
    EXPECT_NE(ErrorOf(ImportFile(file, {}).status()), "") << to;
  }
}

TEST_F(TorchTest, BadExports) {
  const auto error = [&](const std::string& nodes) {
    return ErrorOf(ImportFile(Exported(nodes, TensorArgument("y"), kUserOutput), {}).status());
  };
  EXPECT_THAT(error(Node("aten.neg.default", Given("self", TensorArgument("z")), "y")),
              HasSubstr("`z` is used before"));
  EXPECT_THAT(error(Node("aten.neg.default", "", "y")), HasSubstr("no known overload"));
  EXPECT_THAT(error("{}"), HasSubstr("no target"));
  EXPECT_THAT(error(Node("aten.cholesky.default", Given("self", TensorArgument("x")), "y")),
              HasSubstr("cholesky"));
}

// PyTorch may know how to say it with operators that are known.
TEST_F(TorchTest, UnknownOperatorsNameTheirDecomposition) {
  const std::string nodes =
      Node("aten.unheard_of.default", Given("self", TensorArgument("x")), "y");
  const std::string error =
      ErrorOf(ImportFile(Exported(nodes, TensorArgument("y"), kUserOutput), {}).status());
  EXPECT_THAT(error, HasSubstr("`unheard_of` of domain `aten`"));
  EXPECT_THAT(error, HasSubstr("torch.export.load(\"model.pt2\").run_decompositions()"));
  const std::string own = Node("mine.op.default", Given("self", TensorArgument("x")), "y");
  EXPECT_THAT(ErrorOf(ImportFile(Exported(own, TensorArgument("y"), kUserOutput), {}).status()),
              testing::Not(HasSubstr("run_decompositions")));
}

}  // namespace
}  // namespace quench::importer::torch_export_test
