// Programs that a C compiler makes from model.o, model.a, model.h, and from the memory functions
// that libraries bring along.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/runtime/quench_rt.h"
#include "services/codegen/emit/artifact.h"
#include "services/codegen/emit/backends.h"
#include "services/codegen/header.h"
#include "services/codegen/link/link.h"
#include "services/codegen/object/weights.h"
#include "services/codegen/plan/variants.h"
#include "services/codegen/targets/resolve.h"
#include "tests/unit/services/codegen/compile_support.h"

namespace quench::codegen::emit_test {
namespace {

bool Shell(const std::string& command) {
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

constexpr char kLinkedProgram[] = R"(
#include "common/runtime/quench_rt.h"
#include "model.h"
int main(void) {
  quench_rt_error error;
  quench_rt_model* model;
  quench_rt_session* session;
  if (quench_rt_open_linked(quench_model_query, &model, &error)) return 1;
  if (quench_rt_session_create(model, 0, &session, &error)) return 2;
  float x[6] = {-1, 2, -3, 4, -5, 6};
  const int64_t dims[] = {2, 3};
  const quench_rt_tensor tensor = {x, dims, 1, 2};
  if (quench_rt_set_input(session, MODEL_INPUT_X, &tensor, &error)) return 3;
  if (quench_rt_run(session, &error)) return 4;
  quench_rt_tensor y;
  if (quench_rt_get_output(session, MODEL_OUTPUT_RELU, &y, &error)) return 5;
  for (int i = 0; i < 6; ++i) {
    if (((const float*)y.data)[i] != (x[i] > 0 ? x[i] : 0)) return 6;
  }
  quench_rt_session_free(session);
  quench_rt_close(model);
  return 0;
}
)";

TEST(EmitTest, ObjectsAndArchivesLinkIntoPrograms) {
  if (!Shell("cc --version")) GTEST_SKIP() << "there is no C compiler";
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2, 3}));
  graph.outputs = {Node1(graph, "Relu", {x})};
  graph.value(graph.outputs[0]).name = "relu";
  Infer(graph);
  for (const Emit emit : {Emit::kObject, Emit::kArchive}) {
    const TempDir folder = *TempDir::Create();
    const std::string library = folder.path() / (emit == Emit::kObject ? "model.o" : "model.a");
    CompileOptions options;
    options.emit = emit;
    const absl::StatusOr<CompileReport> report =
        Compile(graph, options, library, folder.path() / "model.h");
    ASSERT_TRUE(report.ok()) << report.status();
    std::ofstream(folder.path() / "main.c") << kLinkedProgram;
    const std::string program = folder.path() / "program";
    ASSERT_TRUE(Shell("cc -std=c11 -I" QUENCH_SOURCE_DIR " -I" + folder.path().string() + " " +
                      (folder.path() / "main.c").string() + " " + library + RuntimeSources() +
                      " -o " + program + " -ldl -lpthread"));
    EXPECT_TRUE(Shell(program)) << library;
  }
}

constexpr char kRegisteredProgram[] = R"(
#include <stdio.h>
#include "common/runtime/quench_rt.h"
static int run(const char* name, float factor) {
  quench_rt_error error;
  quench_rt_model* model;
  quench_rt_session* session;
  if (quench_rt_open_registered(name, &model, &error)) return puts(error.text);
  if (quench_rt_session_create(model, 0, &session, &error)) return 2;
  float x[2] = {-1, 2};
  const int64_t dims[] = {2};
  const quench_rt_tensor tensor = {x, dims, 1, 1};
  quench_rt_tensor y;
  if (quench_rt_set_input(session, 0, &tensor, &error)) return 3;
  if (quench_rt_run(session, &error)) return 4;
  if (quench_rt_get_output(session, 0, &y, &error)) return 5;
  for (int i = 0; i < 2; ++i) {
    if (((const float*)y.data)[i] != factor * x[i]) return 6;
  }
  quench_rt_session_free(session);
  quench_rt_close(model);
  return 0;
}
int main(void) {
  if (run("twice", 2) || run("thrice", 3)) return 1;
  quench_rt_error error;
  quench_rt_model* model;
  if (quench_rt_open_registered("once", &model, &error) != QUENCH_RT_INVALID) return 2;
  puts(error.text);
  return 0;
}
)";

// Archives of a target with system-lib: any number in one program, found by name.
TEST(EmitTest, RegisteredArchivesAreFoundByName) {
  if (!Shell("cc --version")) GTEST_SKIP() << "there is no C compiler";
  const TempDir folder = *TempDir::Create();
  std::string archives;
  for (const auto& [name, factor] : {std::pair("twice", 2.0F), std::pair("thrice", 3.0F)}) {
    Graph graph;
    graph.name = name;
    const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2}));
    const ValueId by =
        graph.AddConstant("by", Tensor::Of<float>(DataType::kF32, {2}, {factor, factor}));
    graph.outputs = {Node1(graph, "Mul", {x, by})};
    Infer(graph);
    CompileOptions options;
    options.target = "llvm -system-lib -num-cores=2";
    ASSERT_EQ(WhatToEmit(options).value(), Emit::kArchive);
    const std::string library = folder.path() / (std::string(name) + ".a");
    const auto report = Compile(graph, options, library, folder.path() / "model.h");
    ASSERT_TRUE(report.ok()) << report.status();
    archives += " " + library;
  }
  std::ofstream(folder.path() / "main.c") << kRegisteredProgram;
  const std::string program = folder.path() / "program", said = folder.path() / "said";
  ASSERT_TRUE(Shell("cc -std=c11 -I" QUENCH_SOURCE_DIR " " + (folder.path() / "main.c").string() +
                    " -Wl,--whole-archive" + archives + " -Wl,--no-whole-archive" +
                    RuntimeSources() + " -o " + program + " -ldl -lpthread"));
  ASSERT_EQ(std::system((program + " > " + said).c_str()), 0) << *ReadFile(said);
  EXPECT_EQ(*ReadFile(said), "no model is called `once`, those registered are `thrice`, `twice`\n");
}

TEST(EmitTest, SystemLibraryIsAnArchive) {
  CompileOptions options;
  options.target = "llvm -system-lib";
  options.emit = Emit::kSharedLibrary;
  EXPECT_EQ(WhatToEmit(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.target = "llvm";
  EXPECT_EQ(WhatToEmit(options).value(), Emit::kSharedLibrary);
}

constexpr char kTwoHeaders[] = R"(
#include <stdio.h>
#include "first/model.h"
#include "second/model.h"
int main(void) {
  printf("%s %s\n", KEYWORD_SPOTTING_2_NAME, VAD_NAME);
  return KEYWORD_SPOTTING_2_INPUT_X + VAD_INPUT_X + VAD_OUTPUT_RELU + VAD_NUM_INPUTS - 1;
}
)";

TEST(EmitTest, OneProgramIncludesTheHeadersOfTwoModels) {
  if (!Shell("cc --version")) GTEST_SKIP() << "there is no C compiler";
  const TempDir folder = *TempDir::Create();
  for (const auto& [beside, name] :
       {std::pair("first", "keyword-spotting.2"), std::pair("second", "vad")}) {
    Graph graph;
    graph.name = name;
    graph.outputs = {
        Node1(graph, "Relu", {graph.AddInput("x", Type::Tensor(DataType::kF32, {2}))})};
    graph.value(graph.outputs[0]).name = "relu";
    Infer(graph);
    CompileOptions options;
    options.header_prefix = name;
    const std::filesystem::path to = folder.path() / beside;
    std::filesystem::create_directory(to);
    const auto report = Compile(graph, options, to / "model.so", to / "model.h");
    ASSERT_TRUE(report.ok()) << report.status();
    options.header_prefix.clear();
    const auto other =
        Compile(graph, options, folder.path() / "model.so", folder.path() / "model.h");
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(*ReadFile(to / "model.so"), *ReadFile(folder.path() / "model.so"));
  }
  const std::string source = folder.path() / "main.c", program = folder.path() / "program",
                    said = folder.path() / "said";
  std::ofstream(source) << kTwoHeaders;
  ASSERT_TRUE(Shell("cc -std=c11 -Wall -Werror " + source + " -o " + program));
  ASSERT_EQ(std::system((program + " > " + said).c_str()), 0);
  EXPECT_EQ(*ReadFile(said), "keyword-spotting.2 vad\n");
}

TEST(EmitTest, PrefixesAreIdentifiers) {
  EXPECT_EQ(HeaderPrefix("yolov8n-seg"), "YOLOV8N_SEG");
  EXPECT_EQ(HeaderPrefix("2d unet"), "X2D_UNET");
  EXPECT_EQ(HeaderPrefix("__net"), "NET");  // the C library's are those that begin so
  EXPECT_EQ(HeaderPrefix("模型"), "MODEL");
  EXPECT_EQ(HeaderPrefix(""), "MODEL");
}

constexpr char kMemoryProgram[] = R"(
#include <stddef.h>
void* memcpy(void*, const void*, size_t);
void* memmove(void*, const void*, size_t);
void* memset(void*, int, size_t);
int memcmp(const void*, const void*, size_t);
static unsigned char a[300], b[300], c[300];
static void fill(void) {
  for (int i = 0; i < 300; ++i) a[i] = c[i] = (unsigned char)(i * 7 + 1), b[i] = 0;
}
int main(void) {
  for (int n = 0; n < 130; ++n) {
    fill();
    if (memcpy(b + 3, a + 5, n) != b + 3) return 1;
    for (int i = 0; i < 300; ++i) {
      if (b[i] != (i >= 3 && i < 3 + n ? a[i + 2] : 0)) return 2;
    }
    for (int shift = -40; shift <= 40; ++shift) {
      fill();
      if (memmove(a + 100 + shift, a + 100, n) != a + 100 + shift) return 3;
      for (int i = 0; i < 300; ++i) {
        const int in = i >= 100 + shift && i < 100 + shift + n;
        if (a[i] != (in ? c[i - shift] : c[i])) return 4;
      }
    }
    fill();
    if (memset(a + 9, 0x1ab, n) != a + 9) return 5;
    for (int i = 0; i < 300; ++i) {
      if (a[i] != (i >= 9 && i < 9 + n ? 0xab : c[i])) return 6;
    }
    fill();
    if (memcmp(a, c, n) != 0) return 7;
    if (n > 0) {
      c[n - 1] = (unsigned char)(a[n - 1] + 1);
      if (a[n - 1] != 255 && memcmp(a, c, n) >= 0) return 8;
      if (a[n - 1] != 255 && memcmp(c, a, n) <= 0) return 9;
      if (memcmp(a, c, n - 1) != 0) return 10;
    }
  }
  return 0;
}
)";

TEST(EmitTest, MemoryFunctionsDoWhatCSays) {
  if (!Shell("cc --version")) GTEST_SKIP() << "there is no C compiler";
  const TempDir folder = *TempDir::Create();
  const Target target = (*ResolveTarget("host"))[0];
  const auto module = ModuleBuilder::Create(target, "m");
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_TRUE(EmitMemoryFunctions(**module).ok());
  const absl::StatusOr<std::string> object = (*module)->Finish();
  ASSERT_TRUE(object.ok()) << object.status();
  std::ofstream(folder.path() / "memory.o", std::ios::binary) << *object;
  std::ofstream(folder.path() / "main.c") << kMemoryProgram;
  const std::string program = folder.path() / "program";
  ASSERT_TRUE(Shell("cc -std=c11 -O0 -fno-builtin " + (folder.path() / "main.c").string() + " " +
                    (folder.path() / "memory.o").string() + " -o " + program));
  EXPECT_TRUE(Shell(program));
}

absl::Status WriteObject(const std::filesystem::path& path, CodeModule& module) {
  QUENCH_ASSIGN_OR_RETURN(const std::string bytes, module.Finish(nullptr));
  return WriteFileAtomically(path, bytes);
}

// A library for this CPU with the variants `plain` and `needy`, the second of which needs `features` too.
absl::Status WriteNeedyLibrary(const CpuFeatures& features, const std::filesystem::path& folder) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Type::Tensor(DataType::kF32, {2}));
  graph.outputs = {Node1(graph, "Relu", {x})};
  Infer(graph);
  const CompileOptions options;
  std::vector<Target> targets(2, ResolveTarget("host").value()[0]);
  targets[0].name = "plain";
  targets[1].name = "needy";
  QUENCH_ASSIGN_OR_RETURN(const Graph groups, GroupGraph(graph, options));
  WeightTable weights;
  QUENCH_ASSIGN_OR_RETURN(std::vector<PlannedVariant> variants,
                          PlanVariants(groups, targets, options, weights, {}));
  variants[1].target.required_features |= features;
  QUENCH_ASSIGN_OR_RETURN(const auto writer,
                          WeightsWriter::Create(folder / "weights.o", targets[0]));
  QUENCH_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, WriteWeights(weights, *writer, {}));
  QUENCH_RETURN_IF_ERROR(writer->Finish());
  const Backend& backend = BackendOf("llvm");
  std::vector<std::filesystem::path> objects = {folder / "weights.o"};
  for (const PlannedVariant& variant : variants) {
    const std::string& name = variant.target.name;
    QUENCH_ASSIGN_OR_RETURN(const auto module, backend.NewModule(variant.target, name, ""));
    QUENCH_RETURN_IF_ERROR(module->AddVariant(variant.built.program, offsets, name + "_variant"));
    if (objects.size() == 1) {
      QUENCH_RETURN_IF_ERROR(module->AddModel({.graph = &graph,
                                               .num_symbols = 0,
                                               .uuid = "00000000-0000-8000-8000-000000000000",
                                               .fingerprint = "",
                                               .producer = "a test",
                                               .variants = {"plain_variant", "needy_variant"},
                                               .num_cores = 0,
                                               .labels = {},
                                               .preprocessing = "",
                                               .target = "",
                                               .producer_revision = "",
                                               .source_digest = "",
                                               .description = "{}"}));
      QUENCH_RETURN_IF_ERROR(module->AddHelpers());
    }
    objects.push_back(folder / (name + ".o"));
    QUENCH_RETURN_IF_ERROR(WriteObject(objects.back(), *module));
  }
  return LinkShared(targets[0], objects, "m.so", folder / "m.so");
}

// Features outside of the first family are a list, which readers without it pass over (docs/abi.md).
TEST(EmitTest, VariantsListFeaturesOfOtherFamilies) {
  constexpr uint64_t kNobodys = uint64_t{1} << 63;
  const uint64_t here = quench_rt_cpu_family(QUENCH_CPU_FAMILY_X86);
  for (const auto& [bits, taken] :
       {std::pair(here, "needy"), std::pair(here | kNobodys, "plain")}) {
    const TempDir folder = *TempDir::Create();
    const absl::Status written = WriteNeedyLibrary({QUENCH_CPU_FAMILY_X86, bits}, folder.path());
    ASSERT_TRUE(written.ok()) << written;
    quench_rt_model* model = nullptr;
    quench_rt_error error{};
    ASSERT_EQ(quench_rt_open_file((folder.path() / "m.so").c_str(), &model, &error), QUENCH_RT_OK)
        << error.text;
    EXPECT_STREQ(quench_rt_variant(model)->name, taken);
    const quench_variant& plain = *quench_rt_describe(model)->variants[0];
    const quench_variant& needy = *quench_rt_describe(model)->variants[1];
    // The struct ends as it did before there were families.
    EXPECT_LT(plain.size, offsetof(quench_variant, features));
    EXPECT_EQ(plain.cpu_features & QUENCH_CPU_OTHERS, 0u);
    if (bits != 0) {
      EXPECT_EQ(needy.size, sizeof needy);
      EXPECT_EQ(needy.cpu_features, plain.cpu_features | QUENCH_CPU_OTHERS);
      ASSERT_EQ(needy.num_features, 1u);
      EXPECT_EQ(needy.features[0].family, QUENCH_CPU_FAMILY_X86);
      EXPECT_EQ(needy.features[0].bits, bits);
    }
    quench_rt_close(model);
  }
}

}  // namespace
}  // namespace quench::codegen::emit_test
