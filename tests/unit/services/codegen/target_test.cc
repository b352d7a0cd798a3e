#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/base/status.h"
#include "common/runtime/abi.h"
#include "services/codegen/codegen.h"
#include "services/codegen/targets/ceilings.h"
#include "services/codegen/targets/resolve.h"
#include "tests/support/matchers.h"

namespace quench::codegen::target_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TargetTest, HostIsWhatThisCpuRuns) {
  const absl::StatusOr<std::vector<Target>> host = ResolveTarget("host");
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_EQ(host->size(), 1u);
  EXPECT_TRUE(ThisCpuFeatures().Has(host->front().required_features));
}

TEST(TargetTest, VariantsGrowStronger) {
  const absl::StatusOr<std::vector<Target>> all = ResolveTarget("x86-64");
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 3u);
  for (size_t i = 1; i < all->size(); ++i) {
    EXPECT_TRUE((*all)[i].required_features.Has((*all)[i - 1].required_features));
    EXPECT_GT((*all)[i].vector_bits, (*all)[i - 1].vector_bits);
  }
}

TEST(TargetTest, UnknownNameListsNearOnes) {
  const absl::Status status = ResolveTarget("aarch46").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(status).find("unknown target `aarch46`, similar ones are `aarch64`"), 0u)
      << status;
}

TEST(TargetTest, EveryListedTargetResolves) {
  const absl::StatusOr<std::vector<TargetInfo>> all = ListTargets();
  ASSERT_TRUE(all.ok()) << all.status();
  std::set<std::string> names;
  for (const TargetInfo& info : *all) {
    const absl::StatusOr<ResolvedTarget> resolved = Resolve(info.name, "", std::nullopt);
    ASSERT_TRUE(resolved.ok()) << info.name << ": " << resolved.status();
    EXPECT_EQ(resolved->unused, std::vector<std::string>()) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_EQ(info.variants.size(), info.strings.size()) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name << " is there twice";
    EXPECT_EQ(info.kind == "android", resolved->variants[0].android) << info.name;
  }
}

TEST(TargetTest, KindsPartTheList) {
  const size_t all = ListTargets("all")->size();
  size_t parts = 0;
  for (const char* kind : {"x86", "arm", "android", "cuda"}) parts += ListTargets(kind)->size();
  EXPECT_EQ(parts, all);
  EXPECT_EQ(ListTargets("mips").status().code(), absl::StatusCode::kInvalidArgument);
}

const Target& Only(const absl::StatusOr<ResolvedTarget>& resolved) {
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->variants.at(0);
}

Target Of(const std::string& text) { return Only(Resolve(text, "", std::nullopt)); }

TEST(TargetTest, ATagAStringAndJsonAreOneTarget) {
  const Target tag = Of("raspberry-pi/5");
  for (const char* text :
       {"llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+neon -num-cores=4",
        "llvm -mtriple aarch64-linux-gnu --mcpu cortex-a76 -mattr '+neon'",
        R"({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76",
            "mattr": ["+neon"], "num-cores": 4})"}) {
    const Target target = Of(text);
    EXPECT_EQ(target.triple, tag.triple) << text;
    EXPECT_EQ(target.features, tag.features) << text;
    EXPECT_EQ(target.cpu, "cortex-a76") << text;
    EXPECT_EQ(target.required_features, tag.required_features) << text;
  }
  EXPECT_TRUE(tag.required_features.Has({QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_DOTPROD}));
  EXPECT_EQ(tag.l2_bytes, 512 << 10);
}

TEST(TargetTest, WidthsFollowFromFeatures) {
  EXPECT_EQ(Of("intel/sandybridge").vector_bits, 128);  // no AVX2: integers are narrow
  EXPECT_FALSE(Of("intel/sandybridge").fma);
  EXPECT_EQ(Of("intel/haswell").vector_bits, 256);
  EXPECT_EQ(Of("amd/zen3").vector_bits, 256);
  const Target zen4 = Of("amd/zen4");
  EXPECT_EQ(zen4.vector_bits, 512);
  EXPECT_EQ(zen4.vector_registers, 32);
  EXPECT_FALSE(zen4.add_products_u8.empty());
  EXPECT_EQ(Of("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f").vector_bits, 256);
  EXPECT_EQ(Of("intel/alderlake").add_products_u8, "llvm.x86.avx512.vpdpbusd.256");
  EXPECT_EQ(Of("i686").vector_registers, 8);
  EXPECT_FALSE(
      Of("llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a5 -mattr=+neon").divides_words);
  EXPECT_TRUE(Of("armv7").divides_words);
}

// A variant may use exactly the features that the runtime checks.
TEST(TargetTest, EveryFeatureIsChecked) {
  const absl::StatusOr<std::vector<TargetInfo>> all = ListTargets();
  ASSERT_TRUE(all.ok()) << all.status();
  for (const TargetInfo& info : *all) {
    const std::vector<Target> targets = ResolveTarget(info.name).value();
    for (const Target& target : targets) {
      const int64_t features = target.features.empty() ? 0
                                                       : 1 + std::count(target.features.begin(),
                                                                        target.features.end(), ',');
      EXPECT_EQ(std::ssize(NamesOf(target.required_features)), features) << target.name;
    }
  }
}

TEST(TargetTest, ABareStringIsTheCallersBaseline) {
  const Target arm = Only(Resolve("llvm", "", HostCpu{"aarch64", {"neon", "dotprod"}}));
  EXPECT_EQ(arm.machine, QUENCH_MACHINE_AARCH64);
  EXPECT_EQ(arm.required_features, CpuFeatures(QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_NEON));
  EXPECT_EQ(Only(Resolve("host", "", HostCpu{"aarch64", {"neon", "dotprod"}})).name,
            "aarch64-dotprod");
  EXPECT_TRUE(NeedsCaller("host"));
  EXPECT_TRUE(NeedsCaller("llvm -mcpu=skylake"));
  EXPECT_FALSE(NeedsCaller("llvm -mtriple=aarch64-linux-gnu"));
  EXPECT_FALSE(NeedsCaller("aarch64"));
}

// `host` uses the cache sizes that the CPU reports, if they can be a core's own.
TEST(TargetTest, TheHostHasItsOwnCaches) {
  const std::vector<std::string> v2 = {"sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"};
  const Target common = Of("x86-64-v2");
  const auto of = [&](int64_t l1, int64_t l2) {
    return Only(Resolve("host", "", HostCpu{"x86_64", v2, l1, l2}));
  };
  EXPECT_EQ(of(48 << 10, 2 << 20).l1_bytes, 48 << 10);
  EXPECT_EQ(of(48 << 10, 2 << 20).l2_bytes, 2 << 20);
  EXPECT_EQ(of(0, 0).l1_bytes, common.l1_bytes);
  EXPECT_EQ(of(0, 0).l2_bytes, common.l2_bytes);
  EXPECT_EQ(of(1, int64_t{1} << 40).l1_bytes, common.l1_bytes);
  EXPECT_EQ(of(1, int64_t{1} << 40).l2_bytes, common.l2_bytes);
  EXPECT_EQ(of(-1, -1).l2_bytes, common.l2_bytes);
  EXPECT_EQ(of(48 << 10, 4 << 20).l2_bytes, common.l2_bytes);  // what virtual machines make up
  // A name says all itself.
  EXPECT_EQ(Only(Resolve("x86-64-v2", "", HostCpu{"x86_64", v2, 48 << 10, 2 << 20})).l2_bytes,
            common.l2_bytes);
}

TEST(TargetTest, WhatNoCodeUsesIsSaid) {
  const auto resolved =
      Resolve("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2,+mmx,+aes", "", std::nullopt);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_THAT(resolved->unused, ElementsAre("+mmx", "+aes"));
}

TEST(TargetTest, MatrixRegisters) {
  const Target tiles = Of("x86-64-v4-amx");
  EXPECT_EQ(tiles.required_features.of(QUENCH_CPU_FAMILY_X86),
            QUENCH_X86_AMX_TILE | QUENCH_X86_AMX_INT8 | QUENCH_X86_AMX_BF16);
  EXPECT_NE(tiles.features.find("+amx-bf16"), std::string::npos);
  EXPECT_TRUE(tiles.matrices.in_registers());
  EXPECT_EQ(tiles.matrices.bfloats, "llvm.x86.tdpbf16ps");
  EXPECT_EQ(tiles.matrices.halves, "");
  for (const char* cpu : {"sapphirerapids", "emeraldrapids", "graniterapids"}) {
    const Target target = Of(std::string("llvm -mtriple=x86_64-linux-gnu -mcpu=") + cpu);
    EXPECT_TRUE(target.matrices.in_registers()) << cpu;
    EXPECT_EQ(target.matrices.halves.empty(), cpu != std::string("graniterapids")) << cpu;
  }
  // Not in 32-bit mode, and not without the vectors that results are stored by.
  EXPECT_FALSE(Of("llvm -mtriple=i686-linux-gnu -mcpu=sapphirerapids").matrices.in_registers());
  EXPECT_EQ(Of("x86-64-v4-fp16").matrices.bfloats, "");
  const Target plain = Of("llvm -mtriple=aarch64-linux-gnu -emulate-matrices");
  EXPECT_FALSE(plain.matrices.in_registers());
  EXPECT_NE(plain.matrices.bfloats, "");
  EXPECT_EQ(plain.required_features, Of("aarch64").required_features);
  const CpuFeatures reported = FeaturesOf(HostCpu{"x86_64", {"sse2", "amx-tile", "amx-int8"}});
  EXPECT_EQ(reported.of(QUENCH_CPU_FAMILY_X86), QUENCH_X86_AMX_TILE | QUENCH_X86_AMX_INT8);
  EXPECT_THAT(NamesOf(reported), ElementsAre("sse2", "amx-tile", "amx-int8"));
}

TEST(TargetTest, CallingConventions) {
  const Target soft = Of("llvm -mtriple=armv7-linux-gnueabi -mfloat-abi=soft");
  EXPECT_TRUE(soft.soft_float_calls);
  EXPECT_FALSE(Of("armv7").soft_float_calls);
  EXPECT_EQ(soft.object_format, "elf");
  EXPECT_EQ(Of("llvm -mtriple=arm-linux-gnueabihf").triple, "armv7-unknown-linux-gnueabihf");
}

struct Refusal {
  const char *text, *host;
  std::vector<const char*> says;
};

TEST(TargetTest, RefusalsNameEveryProblem) {
  const Refusal refusals[] = {
      {"rasberry-pi/5", "", {"unknown target `rasberry-pi/5`", "`raspberry-pi/5`"}},
      {"llvm -mtripel=x -mcp=y", "", {"unknown key `mtripel`", "`mtriple`", "unknown key `mcp`"}},
      {"llvm -mcpu", "", {"`-mcpu` has no value"}},
      {"cuda -arch=", "", {"`arch` is empty"}},
      {R"({"kind": "cuda", "arch": ""})", "", {"`arch` is empty"}},
      {"llvm mcpu=skylake", "", {"`mcpu=skylake` is not an option"}},
      {"llvm -mattr=\"+avx2", "", {"a quote is not closed"}},
      {"llvm -mattr=avx2", "", {"`mattr` has `avx2`"}},
      {"llvm -num-cores=0", "", {"`num-cores` must be a whole number from 1 to 1024"}},
      {"llvm -system-lib=maybe", "", {"`system-lib` must be true or false"}},
      {"{\"kind\": \"llvm\"", "", {"is not JSON"}},
      {"{}", "", {"`kind` is missing"}},
      {R"({"kind": 3, "mattr": [1], "num-cores": 1.5, "system-lib": 7, "host": 1})",
       "",
       {"`kind` must be a string", "`mattr` must be a list of strings",
        "`num-cores` must be a whole number", "`system-lib` must be true or false",
        "`host` must be an object"}},
      {"llvm -mtriple=x86_64-linux-gnu -mcpu=skylak -mattr=+avx512",
       "",
       {"cpu `skylak`", "`skylake`", "feature `avx512`", "`avx512f`"}},
      {"llvm -mtriple=x86_64-linux-gnu -mcpu=cortex-a76", "", {"-mtriple=aarch64-linux-gnu"}},
      {"llvm -mtriple=x86_64-linux-gnu -mcpu=native", "", {"--target host"}},
      {"llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a9", "", {"lacks `vfp4`"}},
      {"llvm -mtriple=i686-linux-gnu -mcpu=pentium3", "", {"lacks `sse2`"}},
      {"llvm -mtriple=aarch64-linux-gnu -mattr=-neon", "", {"lacks `neon`"}},
      {"llvm -mtriple=armv6-linux-gnueabihf", "", {"before armv7"}},
      {"llvm -mtriple=riscv64-linux-gnu", "", {"code is made for x86_64, i686, aarch64, armv7"}},
      {"llvm -mtriple=x86_64-pc-windows-msvc", "", {"Linux and Android"}},
      {"llvm -mtriple=aarch64_be-linux-gnu", "", {"aarch64_be-linux-gnu"}},
      {"llvm -mtriple=armv7-linux-gnueabihf -mfloat-abi=soft", "", {"means `hard`", "gnueabi"}},
      {"llvm -mtriple=x86_64-linux-gnu -mfloat-abi=squishy", "", {"`hard` or `soft`"}},
      {"llvm -mtriple=aarch64-linux-gnu -mabi=ilp32", "", {"means `lp64`"}},
      {"llvm -libs=cblas,mkl", "", {"libs has `cblas`", "libs has `mkl`"}},
      {"llvm -arch=sm_86", "", {"arch is `sm_86`"}},
      {"cuda -arch=sm_85",
       "",
       {"unknown arch `sm_85`, similar ones are `sm_75`, `sm_80`, `sm_86`"}},
      {"cuda -arch=sm_86,sm_1", "", {"unknown arch `sm_1`"}},
      {"cuda -mcpu=skylake -mtriple=x86_64-linux-gnu -mattr=+avx2 -system-lib",
       "",
       {"mcpu is `skylake`", "mtriple is `x86_64-linux-gnu`", "give it to `host`",
        "mattr has features of CPUs", "system-lib is of CPUs"}},
      {"cuda -arch=sm_86 -host=x86-64-v2",
       "x86-64-v3",
       {"host is given twice, as `x86-64-v3` and in the target as `x86-64-v2`"}},
      {"cuda -arch=sm_86", "cuda", {"host: kind is `cuda`, a GPU's host is a CPU"}},
      {"cuda -arch=sm_86 -host=opencl", "", {"host: ", "kind is `opencl`"}},
      {"cuda -arch=sm_86", "armv7", {"GPUs need a host with 64"}},
      {"nvidia/geforce-rtx-309", "", {"`nvidia/geforce-rtx-3090`"}},
      {"opencl", "", {"kind is `opencl`"}},
      {"aarch64", "x86-64-v3", {"host: ", "cannot load libraries for"}},
      {"x86-64-v4", "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", {"lacks avx512f"}},
      {R"({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "host": {"kind": "llvm", "x": 1}})",
       "",
       {"`host`: unknown key `x`"}},
  };
  for (const Refusal& refusal : refusals) {
    const absl::Status status = Resolve(refusal.text, refusal.host, std::nullopt).status();
    EXPECT_FALSE(status.ok()) << refusal.text;
    for (const char* part : refusal.says)
      EXPECT_THAT(MessageOf(status), HasSubstr(part)) << refusal.text;
  }
}

TEST(TargetTest, HostsThatRunTheCodeAreTaken) {
  EXPECT_TRUE(Resolve("x86-64", "x86-64-v2", std::nullopt).ok());  // its weakest variant runs
  EXPECT_TRUE(Resolve("llvm -mtriple=x86_64-linux-gnu", "intel/haswell", std::nullopt).ok());
}

std::vector<std::string> VariantsOf(const std::string& text, const std::string& host = "",
                                    const std::optional<HostCpu>& caller = {}) {
  const absl::StatusOr<ResolvedTarget> resolved = Resolve(text, host, caller);
  EXPECT_TRUE(resolved.ok()) << text << ": " << resolved.status();
  std::vector<std::string> names;
  for (const Target& each : resolved->variants) names.push_back(each.name);
  return names;
}

// Code for the host, weakest first, then for the GPUs beside the weakest.
TEST(CudaTargetTest, AStringAndJsonAreOneTarget) {
  for (const char* text : {"cuda -arch=sm_86", R"({"kind": "cuda", "arch": "sm_86"})",
                           "cuda -arch=sm_86 -host=x86-64"}) {
    EXPECT_THAT(VariantsOf(text), ElementsAre("x86-64-v2", "x86-64-v3", "x86-64-v4", "cuda-sm_86"))
        << text;
  }
  const ResolvedTarget resolved = Resolve("cuda -arch=sm_86", "", std::nullopt).value();
  const Target& device = *resolved.variants.back().device;
  EXPECT_EQ(device.triple, "nvptx64-nvidia-cuda");
  EXPECT_EQ(device.cpu, "sm_86");
  EXPECT_EQ(device.gpu->driver, "11.4");
  EXPECT_EQ(resolved.variants.back().required_features,
            resolved.variants.front().required_features);
}

TEST(CudaTargetTest, SeveralArchitecturesAreSortedAndThereOnce) {
  EXPECT_THAT(VariantsOf("cuda -arch=sm_90,sm_75,sm_90", "x86-64-v3"),
              ElementsAre("x86-64-v3", "cuda-sm_75", "cuda-sm_90"));
  // The PTX of sm_90 is what newer cards get.
  EXPECT_THAT(VariantsOf("cuda -arch=sm_90,sm_120", "x86-64-v3"),
              ElementsAre("x86-64-v3", "cuda-sm_90"));
}

TEST(CudaTargetTest, BareCudaIsTheCallersGpu) {
  HostCpu caller{"x86_64", {"sse2"}};
  EXPECT_THAT(VariantsOf("cuda", "x86-64-v3", caller), ElementsAre("x86-64-v3", "cuda-sm_75"));
  caller.gpu = "sm_89";
  EXPECT_THAT(VariantsOf("cuda", "x86-64-v3", caller), ElementsAre("x86-64-v3", "cuda-sm_89"));
  EXPECT_TRUE(NeedsCaller("cuda"));
  EXPECT_TRUE(NeedsGpu("cuda"));
  EXPECT_FALSE(NeedsCaller("cuda -arch=sm_86"));
  EXPECT_TRUE(NeedsCaller("cuda -arch=sm_86 -host=host"));
}

TEST(CudaTargetTest, CardsAndBoardsAreTags) {
  const TargetSpec card = Resolve("nvidia/geforce-rtx-3090", "", std::nullopt)->spec;
  EXPECT_EQ(ToString(card), ToString(Resolve("cuda -arch=sm_86", "", std::nullopt)->spec));
  EXPECT_EQ(VariantsOf("nvidia/jetson-agx-orin-64gb").back(), "cuda-sm_87");
  EXPECT_EQ(Of("nvidia/jetson-agx-orin-64gb").machine, QUENCH_MACHINE_AARCH64);
  EXPECT_EQ(VariantsOf("nvidia/jetson-orin-nano").size(), 1u);  // the CPU, as ever
  EXPECT_EQ(VariantsOf("nvidia/jetson-orin-nano-gpu").back(), "cuda-sm_87");
  EXPECT_THAT(VariantsOf("nvidia/geforce-rtx-5090", "x86-64-v3"),
              ElementsAre("x86-64-v3", "cuda-sm_90"));
}

TEST(CudaTargetTest, TheListSaysWhatCodeThereIs) {
  std::map<std::string, TargetInfo> list;
  const absl::StatusOr<std::vector<TargetInfo>> infos = ListTargets("cuda");
  ASSERT_TRUE(infos.ok()) << infos.status();
  for (const TargetInfo& info : *infos) list[info.name] = info;
  EXPECT_THAT(list.at("cuda").strings, ElementsAre("cuda"));
  EXPECT_EQ(list.at("cuda -arch=sm_86").description, "PTX 7.1, for drivers from CUDA 11.4 on");
  EXPECT_THAT(list.at("cuda -arch=sm_120").description, HasSubstr("PTX 7.8 of sm_90"));
  const TargetInfo& card = list.at("nvidia/geforce-rtx-3090");
  EXPECT_EQ(card.description, "GeForce RTX 3090 (24 GB, 82 multiprocessors)");
  EXPECT_THAT(card.strings, ElementsAre("cuda -arch=sm_86"));
  EXPECT_THAT(card.variants, ElementsAre("cuda-sm_86: cpu sm_86 +ptx71"));
  EXPECT_THAT(list.at("nvidia/geforce-rtx-5090").description, HasSubstr("PTX of sm_90"));
  EXPECT_THAT(list.at("nvidia/jetson-agx-thor").strings,
              ElementsAre("cuda -arch=sm_110 -host=aarch64"));
}

TEST(TargetTest, StringsPrintAndParse) {
  const char* json = R"({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "model": "a \"b\" c",
    "keys": ["cpu", "x"], "system-lib": true, "num-cores": 3,
    "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "device": "a b",
             "host": "llvm -mcpu='x y'"}})";
  const absl::StatusOr<TargetSpec> spec = ParseTargetSpec(json);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::string text = ToString(*spec);
  const absl::StatusOr<TargetSpec> again = ParseTargetSpec(text);
  ASSERT_TRUE(again.ok()) << text << ": " << again.status();
  EXPECT_EQ(ToString(*again), text);
  EXPECT_EQ(again->model, "a \"b\" c");
  EXPECT_EQ(again->host->host->mcpu, "x y");
  EXPECT_TRUE(again->system_lib);
}

TEST(TargetTest, CeilingsAreThoseOfTargets) {
  for (const TargetCeilings& row : CeilingsTable()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(IsTargetName(row.name));
    const absl::StatusOr<ResolvedTarget> target = Resolve(row.name, "", std::nullopt);
    ASSERT_TRUE(target.ok()) << target.status();
    // Two operations a lane: a core begins one to four multiply-adds of 128 bits in a cycle.
    EXPECT_EQ(std::fmod(row.operations_per_cycle, 8), 0);
    EXPECT_GT(row.gbytes, 1);
    if (target->spec.num_cores != 0) {
      EXPECT_EQ(row.cores, target->spec.num_cores);
    }
  }
  EXPECT_DOUBLE_EQ(CeilingsOf("raspberry-pi/5")->gflops(), 153.6);
  EXPECT_THAT(MessageOf(CeilingsOf("intel/skylake").status()), HasSubstr("are not known"));
  EXPECT_THAT(MessageOf(CeilingsOf("raspbery-pi/5").status()), HasSubstr("raspberry-pi/5"));
}

TEST(TargetTest, HostsOfHostsEnd) {
  std::string text = "llvm";
  for (int i = 0; i < 8; ++i)
    text = R"({"kind": "llvm", "host": )" + (i == 0 ? "\"llvm\"" : text) + "}";
  EXPECT_THAT(MessageOf(ParseTargetSpec(text).status()), HasSubstr("hosts lie in one another"));
  EXPECT_FALSE(ParseTargetSpec("llvm " + std::string(20000, 'x')).ok());
}

}  // namespace
}  // namespace quench::codegen::target_test
