// TorchScript files and pickles, written here: what they become, and what is said of bad ones.
#include <cmath>

#include "tests/unit/services/importer/torch_fixture.h"

namespace quench::importer::torch_test {
namespace {

using namespace testing::pickle;  // NOLINT: a vocabulary
using testing::BytesOf;
using testing::ErrorOf;
using testing::HasSubstr;
using testing::ZipEntry;
using testing::ZipOf;

// ---- TorchScript ----

TEST_F(TorchTest, CodeAndWeights) {
  const std::string code = Forward("x: Tensor",
                                   "weight = self.weight\n"
                                   "bias = self.bias\n"
                                   "y = torch.linear(x, weight, bias)\n"
                                   "return torch.add(torch.mul(y, 2), y, alpha=3)");
  const std::string file =
      Script(code, {{"weight", F32("0", {2, 3})}, {"bias", F32("1", {2})}},
             {{"m/data/0", BytesOf({1, 0, 0, 0, 1, 1})}, {"m/data/1", BytesOf({10, 20})}});
  EXPECT_EQ(Run(file, {Values({1, 3}, {1, 2, 3})}, Shape("x", {1, 3})),
            (std::vector<Floats>{{55, 125}}));
}

TEST_F(TorchTest, TheSignOfNanIsZero) {
  const std::string file = Script(Forward("x: Tensor", "return torch.sign(x)"));
  EXPECT_EQ(Run(file, {Values({3}, {-2, std::nanf(""), 3})}, Shape("x", {3})),
            (std::vector<Floats>{{-1, 0, 1}}));
}

// The only element lies in the middle of all, not at the first.
TEST_F(TorchTest, ImagesOfOnePixel) {
  const std::string code =
      Forward("x: Tensor", "return torch.upsample_bilinear2d(x, [1, 1], False, None)");
  EXPECT_EQ(Run(Script(code), {Values({1, 1, 2, 2}, {1, 2, 3, 6})}, Shape("x", {1, 1, 2, 2})),
            (std::vector<Floats>{{3}}));
}

TEST_F(TorchTest, MethodsOfModulesWithin) {
  const std::string code =
      "class M(Module):\n"
      "  a : __torch__.sub.A\n"
      "  def forward(self: __torch__.M, x: Tensor) -> Tuple[Tensor, Tensor]:\n"
      "    _0 = __torch__.sub.twice\n"
      "    a = self.a\n"
      "    y, z, = (a).forward(_0(x, ), )\n"
      "    return (y, z)\n";
  const std::string sub =
      "def twice(x: Tensor, by: float=2.) -> Tensor:\n"
      "  return torch.mul(x, by)\n"
      "class A(Module):\n"
      "  __parameters__ = []\n"
      "  n : Final[int] = 3\n"
      "  def forward(self: __torch__.sub.A, x: Tensor) -> Tuple[Tensor, Tensor]:\n"
      "    return (torch.add(x, self.n), torch.neg(x))\n";
  const std::string file =
      Script(code, {{"a", Object("__torch__.sub", "A", {})}}, {{"m/code/__torch__/sub.py", sub}});
  EXPECT_EQ(Run(file, {Values({2}, {1, 2})}, Shape("x", {2})),
            (std::vector<Floats>{{5, 7}, {-2, -4}}));
}

TEST_F(TorchTest, NamedTuplesAndListsOfFlags) {
  const std::string code =
      "class Pair(NamedTuple):\n"
      "  logits : Tensor\n"
      "  aux : Optional[Tensor]\n"
      "class M(Module):\n"
      "  def forward(self: __torch__.M, x: Tensor) -> __torch__.Pair:\n"
      "    flags = [False, torch.gt(torch.len(torch.size(x)), 0)]\n"
      "    if torch.any(flags):\n"
      "      y = torch.neg(x)\n"
      "    else:\n"
      "      y = x\n"
      "    if torch.__not__(torch.all(flags)):\n"
      "      z = torch.mul(y, 2)\n"
      "    else:\n"
      "      z = y\n"
      "    return __torch__.Pair(z, None)\n";
  EXPECT_EQ(Run(Script(code), {Values({2}, {1, 2})}, Shape("x", {2})),
            (std::vector<Floats>{{-2, -4}}));
  const auto imported = ImportFile(Script(code), Shape("x", {2}));
  ASSERT_TRUE(imported.ok());
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "logits");
}

TEST_F(TorchTest, BranchesThatShapesDecide) {
  const std::string code = Forward("x: Tensor",
                                   "if torch.eq(torch.dim(x), 2):\n"
                                   "  y = torch.relu(x)\n"
                                   "else:\n"
                                   "  ops.prim.RaiseException(\"rank\")\n"
                                   "  y = x\n"
                                   "sizes = annotate(List[int], [])\n"
                                   "for i in range(torch.len(torch.size(x))):\n"
                                   "  _0 = torch.append(sizes, torch.size(x, i))\n"
                                   "a, b, = sizes\n"
                                   "return torch.view(y, [torch.mul(a, b)])");
  EXPECT_EQ(Run(Script(code), {Values({1, 2}, {-1, 2})}, Shape("x", {1, 2})),
            (std::vector<Floats>{{0, 2}}));
  // Sizes that only a run knows.
  EXPECT_EQ(Run(Script(code), {Values({1, 2}, {-1, 2})}, Shape("x", {-1, 2})),
            (std::vector<Floats>{{0, 2}}));
}

TEST_F(TorchTest, DifferencesOfNeighbours) {
  const auto differences = [&](const std::string& arguments) {
    const std::string code = Forward("x: Tensor", "return torch.diff(x" + arguments + ")");
    return Run(Script(code), {Values({2, 3}, {1, 4, 9, 0, 2, 5})}, Shape("x", {2, 3}));
  };
  EXPECT_EQ(differences(""), (std::vector<Floats>{{3, 5, 2, 3}}));
  EXPECT_EQ(differences(", 2"), (std::vector<Floats>{{2, 1}}));
  EXPECT_EQ(differences(", 1, 0"), (std::vector<Floats>{{-1, -2, -4}}));
  EXPECT_EQ(differences(", 1, 0, x"), (std::vector<Floats>{{-1, -2, -4, 1, 2, 4, -1, -2, -4}}));
  EXPECT_EQ(differences(", 3"), (std::vector<Floats>{{}}));
}

TEST_F(TorchTest, BranchesAndLoopsThatARunDecides) {
  const std::string code = Forward("x: Tensor",
                                   "if bool(torch.gt(torch.sum(x), 0)):\n"
                                   "  y = torch.mul(x, 10)\n"
                                   "else:\n"
                                   "  y = torch.neg(x)\n"
                                   "n = int(torch.max(x))\n"
                                   "z = y\n"
                                   "for i in range(n):\n"
                                   "  z0 = torch.add(z, i)\n"
                                   "  z = z0\n"
                                   "return z");
  EXPECT_EQ(Run(Script(code), {Values({2}, {1, 3})}, Shape("x", {2})),
            (std::vector<Floats>{{13, 33}}));
  EXPECT_EQ(Run(Script(code), {Values({2}, {-5, 2})}, Shape("x", {2})),
            (std::vector<Floats>{{6, -1}}));
}

TEST_F(TorchTest, WritesThroughViews) {
  const std::string code = Forward("x: Tensor",
                                   "y = torch.clone(x)\n"
                                   "part = torch.slice(y, 0, 1, 3)\n"
                                   "row = torch.select(torch.view(part, [2, 2]), 0, 1)\n"
                                   "_0 = torch.mul_(row, 10)\n"
                                   "_1 = torch.add_(part, 1)\n"
                                   "return torch.cat([torch.view(y, [-1]), row])");
  EXPECT_EQ(Run(Script(code), {Values({3, 2}, {1, 2, 3, 4, 5, 6})}, Shape("x", {3, 2})),
            (std::vector<Floats>{{1, 2, 4, 5, 51, 61, 51, 61}}));
}

// Parts of split, chunk, unbind and narrow: each part arrives in the whole, and no part in another.
TEST_F(TorchTest, WritesThroughPartsOfASplit) {
  const std::string code = Forward("x: Tensor",
                                   "y = torch.clone(x)\n"
                                   "a, b, = torch.chunk(y, 2, -1)\n"
                                   "_0 = torch.mul_(a, 10)\n"
                                   "c, d, = torch.split(y, [1, 3], 1)\n"
                                   "_1 = torch.add_(d, 100)\n"
                                   "e, f, = torch.unbind(y)\n"
                                   "_2 = torch.neg_(e)\n"
                                   "_3 = torch.zero_(torch.narrow(y, 1, -1, 1))\n"
                                   "return (y, torch.add(b, 0), torch.add(f, 0))");
  EXPECT_EQ(Run(Script(code), {Values({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}, Shape("x", {2, 4})),
            (std::vector<Floats>{
                {-10, -120, -103, 0, 50, 160, 107, 0}, {-103, 0, 107, 0}, {50, 160, 107, 0}}));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor",
                                    "y = torch.clone(x)\n"
                                    "_0 = torch.zero_(torch.diagonal(y))\n"
                                    "return y")),
              HasSubstr("a result of diagonal is written to in place"));
}

TEST_F(TorchTest, WrittenBuffersAreStates) {
  const std::string code = Forward("x: Tensor",
                                   "n = self.n\n"
                                   "_0 = torch.add_(n, x)\n"
                                   "return torch.mul(n, 2)");
  const std::string file = Script(code, {{"n", F32("0", {2})}}, {{"m/data/0", BytesOf({5, 5})}});
  EXPECT_EQ(Run(file, {Values({2}, {1, 2}), Values({2}, {10, 10})}, Shape("x", {2})),
            (std::vector<Floats>{{22, 24}, {11, 12}}));
  const auto imported = ImportFile(file, Shape("x", {2}));
  ASSERT_TRUE(imported.ok()) << imported.status();
  const std::vector<StatePair> states = StatesOf(imported->canonical);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].initial.FloatAt(0), 5);
}

// A scalar tensor of a trace's constants.
std::string ScalarOf(const std::string& storage_type, const std::string& key) {
  const std::string storage =
      Tuple({Text("storage"), Global("torch", storage_type), Text(key), Text("cpu"), Int(1)}) + "Q";
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Int(0), Tuple({}), Tuple({}), Bool(false),
               Call(Global("collections", "OrderedDict"), {})});
}

template <typename T>
std::string RawOf(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A trace writes 2.5 in `x * 2.5` as a tensor of f64; its category counts, its type does not.
TEST_F(TorchTest, ConstantsOfTracesCountAsNumbers) {
  const std::string code = Forward("x: Tensor",
                                   "n = torch.to(x, 3)\n"  // i32
                                   "h = torch.to(x, 5)\n"  // f16
                                   "a = torch.mul(n, CONSTANTS.c0)\n"
                                   "b = torch.add(n, CONSTANTS.c1)\n"
                                   "c = torch.div(h, CONSTANTS.c0)\n"
                                   "d = torch.where(torch.gt(x, 1), CONSTANTS.c0, CONSTANTS.c1)\n"
                                   "return (a, b, c, d)");
  const std::string file =
      testing::ZipOf({{"m/data.pkl", File(Object("__torch__", "M", {}))},
                      {"m/constants.pkl",
                       File(Tuple({ScalarOf("DoubleStorage", "0"), ScalarOf("LongStorage", "1")}))},
                      {"m/constants/0", RawOf(2.5)},
                      {"m/constants/1", RawOf(int64_t{3})},
                      {"m/code/__torch__.py", code},
                      {"m/version", "3\n"}});
  EXPECT_EQ(Run(file, {Values({2}, {1, 2})}, Shape("x", {2})),
            (std::vector<Floats>{{2.5F, 5}, {4, 5}, {0.39990234F, 0.7998047F}, {3, 2.5F}}));
  const auto imported = ImportFile(file, Shape("x", {2}));
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<DataType> types;
  for (const ValueId id : imported->canonical.outputs)
    types.push_back(imported->canonical.value(id).type.dtype);
  EXPECT_EQ(types, (std::vector<DataType>{DataType::kF32, DataType::kI32, DataType::kF16,
                                          DataType::kF32}));
}

TEST_F(TorchTest, TrainingIsSwitchedOff) {
  const std::string code = Forward("x: Tensor", "return torch.dropout(x, 0.5, self.training)");
  EXPECT_EQ(Run(Script(code, {{"training", Bool(true)}}), {Values({2}, {1, 2})}, Shape("x", {2})),
            (std::vector<Floats>{{1, 2}}));
}

TEST_F(TorchTest, QuantizedWeights) {
  const std::string storage =
      Tuple({Text("storage"), Global("torch", "QInt8Storage"), Text("0"), Text("cpu"), Int(4)}) +
      "Q";
  const std::string weight =
      Call(Global("torch._utils", "_rebuild_qtensor"),
           {storage, Int(0), Tuple({Int(2), Int(2)}), Tuple({Int(2), Int(1)}),
            Tuple({Global("torch", "per_tensor_affine"), Float(0.5), Int(1)}), Bool(false),
            Call(Global("collections", "OrderedDict"), {})});
  const std::string packed = Global("__torch__.torch.classes.quantized", "LinearPackedParamsBase") +
                             ")\x81" + Tuple({weight, None()}) + "b";
  const std::string code = Forward("x: Tensor",
                                   "q = torch.quantize_per_tensor(x, 0.25, 10, 13)\n"
                                   "y = ops.quantized.linear(q, self.p, 0.5, 0)\n"
                                   "return torch.dequantize(y)");
  const std::string file =
      Script(code, {{"p", packed}}, {{"m/data/0", std::string("\x03\x01\x01\x05", 4)}});
  ImportOptions options = Shape("x", {1, 2});
  for (const bool keep : {false, true}) {
    options.keep_quantized_weight = keep;  // weights [1, 0], [0, 2]
    EXPECT_EQ(Run(file, {Values({1, 2}, {1.3F, 4})}, options), (std::vector<Floats>{{1, 8}}));
  }
  const auto kept = ImportFile(file, options);
  ASSERT_TRUE(kept.ok());
  EXPECT_THAT(PrintGraph(kept->canonical), HasSubstr("i8[2, 2]"));
}

TEST_F(TorchTest, NamesAndDefaults) {
  const std::string code = Forward("x: Tensor", "return torch.mul(x, 2)");
  EXPECT_THAT(ErrorOf(ImportFile(Script(code), {}).status()), HasSubstr("input `x`: has no shape"));
  ImportOptions options = Shape("x", {2});
  options.default_dtype = DataType::kI64;
  const auto imported = ImportFile(Script(code), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).type.dtype, DataType::kI64);
  EXPECT_EQ(imported->canonical.value(imported->canonical.outputs[0]).name, "output");
}

// Overloads whose arguments look alike: what stands without a name is not a keyword.
TEST_F(TorchTest, Overloads) {
  const std::string code = Forward("x: Tensor",
                                   "a = torch.arange(0, 6, 2, dtype=None)\n"
                                   "b = torch.prod(x, 0)\n"
                                   "c = torch.scatter(b, 0, torch.tensor([1]), 9.)\n"
                                   "d = torch.sum(x, dtype=7)\n"
                                   "return torch.cat([a, b, c, torch.view(d, [1])])");
  EXPECT_EQ(Run(Script(code), {Values({2, 2}, {1, 2, 3, 4})}, Shape("x", {2, 2})),
            (std::vector<Floats>{{0, 2, 4, 3, 8, 3, 9, 10}}));
}

TEST_F(TorchTest, UnsupportedOperatorsAreOneError) {
  const std::string code = Forward("x: Tensor",
                                   "y = torch.cholesky(x)\n"
                                   "z = ops.mine.special(y)\n"
                                   "return torch.cholesky(z)");
  const std::string error = ErrorOfScript(code);
  EXPECT_THAT(error, HasSubstr("cholesky"));
  EXPECT_THAT(error, HasSubstr("special"));
  ImportOptions options = Shape("x", {2, 2});
  const auto found = FindUnsupported(path(), options);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].nodes.size(), 2u);
}

TEST_F(TorchTest, WhatTheModelRaises) {
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "ops.prim.RaiseException(\"no\")\nreturn x")),
              HasSubstr("the model raises `no`"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Dict[str, Tensor]", "return x[\"a\"]")),
              HasSubstr("input `x` of forward is of the type `Dict`"));
  EXPECT_THAT(
      ErrorOfScript("class M(Module):\n  def other(self: __torch__.M) -> int:\n    return 1\n"),
      HasSubstr("no method `forward`"));
}

TEST_F(TorchTest, BadCode) {
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "return torch.mul(x, ")),
              HasSubstr("__torch__.py`: line"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "return y")), HasSubstr("`y` is not defined"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "import os\nreturn x")), HasSubstr("line 4"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "return " + std::string(5000, '('))),
              HasSubstr("nest more than 200 deep"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "while True:\n  pass\nreturn x")),
              HasSubstr("more than 100000 steps"));
  EXPECT_THAT(
      ErrorOfScript("class M(Module):\n  def forward(self: __torch__.M, x: Tensor) -> Tensor:\n"
                    "    return (self).forward(x, )\n"),
      HasSubstr("calls nest more than 100 deep"));
}

// Lists that PyTorch's types rule out, but a file may contain.
TEST_F(TorchTest, ListsThatNoProgramHas) {
  const std::string list = "y = annotate(List[int], [])\n";
  for (const char* statement :
       {"_0 = torch.append(y, y)", "_0 = torch.append(y, [[y]])", "_0 = torch.extend(y, [y])",
        "_0 = torch.insert(y, 0, y)", "d = {\"a\": y}\n_0 = torch.append(y, d)",
        "self.y = y\n_0 = torch.append(y, self)"}) {
    EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", list + statement + "\nreturn torch.eq(y, y)")),
                HasSubstr("becomes a part of itself"))
        << statement;
  }
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "self.me = [self]\nreturn self")),
              HasSubstr("becomes a part of itself"));
  EXPECT_THAT(ErrorOfScript(Forward("x: Tensor", "y = [1]\n_0 = torch._set_item(y, 0)\nreturn x")),
              HasSubstr("set to nothing"));
  // Endless, were they counted.
  const std::string most = std::to_string(INT64_MAX);
  EXPECT_EQ(Run(Script(Forward("x: Tensor", list + "z = torch.mul(y, " + most +
                                                ")\na = torch.slice([1, 2, 3], 1, 3, " + most +
                                                ")\nreturn torch.add(torch.mul(x, torch.len(z)), "
                                                "torch.len(a))")),
                {Values({2}, {3, 4})}, Shape("x", {2})),
            (std::vector<Floats>{{1, 1}}));
  // The same list twice is fine.
  EXPECT_EQ(Run(Script(Forward("x: Tensor",
                               "y = [2]\n_0 = torch.extend(y, y)\nz = [y, y]\n"
                               "_1 = torch.append(z, y)\nreturn torch.mul(x, torch.mul("
                               "torch.len(z), torch.len(y)))")),
                {Values({1}, {5})}, Shape("x", {1})),
            (std::vector<Floats>{{30}}));
}

// ---- Archives and pickles ----

TEST_F(TorchTest, BadArchives) {
  const std::string good = Script(Forward("x: Tensor", "return x"));
  const auto error = [&](const std::string& bytes) {
    return ErrorOf(ImportFile(bytes, Shape("x", {1})).status());
  };
  std::string damaged = good;
  damaged[good.find("return x") + 7] = 'y';
  EXPECT_THAT(error(damaged), HasSubstr("its checksum differs"));
  const ZipEntry code = {"m/code/__torch__.py", "x"};
  const auto with = [&](ZipEntry entry) {
    return ZipOf({{"m/data.pkl", "."}, {"m/constants.pkl", "."}, code, std::move(entry)});
  };
  EXPECT_THAT(error(with(code)), HasSubstr("is there twice"));
  EXPECT_THAT(error(with({"m/../../etc", "x"})), HasSubstr("leaves the archive's folder"));
  EXPECT_THAT(error(with({"/etc", "x"})), HasSubstr("leaves the archive's folder"));
  EXPECT_THAT(error(with({"m/link", "x", 0, 0, 0120777})), HasSubstr("is a symbolic link"));
  EXPECT_THAT(error(with({"m/secret", "x", 1})), HasSubstr("is encrypted"));
  EXPECT_THAT(error(with({"m/packed", "x", 0, 12})), HasSubstr("method 12"));
  EXPECT_THAT(error(with({"m/bomb", "x", 0, 8, 0, 1u << 31})), HasSubstr("a thousandfold"));
  EXPECT_THAT(error(with({"m/long", "x", 0, 0, 0, 1u << 31})), HasSubstr("are announced"));
}

TEST_F(TorchTest, BadPickles) {
  const auto error = [&](const std::string& pickle) {
    return ErrorOf(ImportFile(ZipOf({{"m/data.pkl", pickle},
                                     {"m/constants.pkl", File(Tuple({}))},
                                     {"m/code/__torch__.py", Forward("x: Tensor", "return x")}}),
                              Shape("x", {1}))
                       .status());
  };
  EXPECT_THAT(error(File(Call(Global("os", "system"), {Text("true")}))),
              HasSubstr("`os.system`, which is code"));
  EXPECT_THAT(error("\x80\x02X\xff\xff\xff\x7f"), HasSubstr("is cut off"));
  EXPECT_THAT(error("\x80\x02tt."), HasSubstr("no mark"));
  EXPECT_THAT(error("\x80\x63."), HasSubstr("protocol 99"));
  EXPECT_THAT(error(File(Int(3))), HasSubstr("holds no module"));
  EXPECT_THAT(error(File(Object("__torch__", "M", {{"w", F32("7", {1})}}))),
              HasSubstr("no `data/7`"));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "](";
  deep += "N";
  for (int i = 0; i < 1000; ++i) deep += "e";
  EXPECT_THAT(error(File(Object("__torch__", "M", {{"w", deep}}))),
              HasSubstr("nest more than 200"));
}

TEST_F(TorchTest, BadTensors) {
  const auto error = [&](const std::vector<int32_t>& dims, const std::string& bytes) {
    const std::string code = Forward("x: Tensor", "w = self.w\nreturn torch.add(x, w)");
    return ErrorOf(
        ImportFile(Script(code, {{"w", F32("0", dims)}}, {{"m/data/0", bytes}}), Shape("x", {1}))
            .status());
  };
  EXPECT_THAT(error({3}, BytesOf({1, 2})),
              HasSubstr("needs 3 elements of its storage, which has 2"));
  EXPECT_THAT(error({1 << 30, 1 << 30, 1 << 30}, BytesOf({1})), HasSubstr("which no memory holds"));
  EXPECT_THAT(error({-1}, BytesOf({1})), HasSubstr("which no memory holds"));
}

TEST_F(TorchTest, StateDictsAreToldHowToExport) {
  const std::string state =
      ZipOf({{"m/data.pkl", File(Dict({{"w", F32("0", {1})}}))}, {"m/data/0", BytesOf({1})}});
  const std::string module = ZipOf({{"m/data.pkl", File(Object("models", "Net", {}))}});
  const std::string legacy =
      std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  for (const std::string& file : {state, module, legacy}) {
    const std::string error = ErrorOf(ImportFile(file, {}).status());
    EXPECT_THAT(error,
                HasSubstr("import torch\ntorch.export.save(torch.export.export(model.eval()"));
  }
  EXPECT_THAT(ErrorOf(ImportFile(module, {}).status()), HasSubstr("`models.Net`"));
}

}  // namespace
}  // namespace quench::importer::torch_test
