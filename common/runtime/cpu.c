#define _DEFAULT_SOURCE /* posix_memalign, madvise, syscall */
/* What this CPU can do, and names for people. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/runtime/rt_internal.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) || defined(__arm__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__i386__)

static uint64_t bit(uint32_t word, int index, uint64_t feature) {
  return (word >> index) & 1u ? feature : 0;
}

/* Registers the operating system saves: XCR0 (Intel SDM volume 1, 13.3). */
static uint64_t saved_state(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t)high << 32) | low;
}

uint64_t quench_rt_cpu_features(void) {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  uint64_t features = bit(d, 26, QUENCH_CPU_SSE2) | bit(c, 0, QUENCH_CPU_SSE3) |
                      bit(c, 9, QUENCH_CPU_SSSE3) | bit(c, 19, QUENCH_CPU_SSE41) |
                      bit(c, 20, QUENCH_CPU_SSE42) | bit(c, 23, QUENCH_CPU_POPCNT);
  uint32_t a1, b1, c1, d1;
  if (__get_cpuid(0x80000001u, &a1, &b1, &c1, &d1)) features |= bit(c1, 5, QUENCH_CPU_LZCNT);
  const uint64_t state = (c >> 27) & 1u ? saved_state() : 0;
  const int ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  if (ymm) {
    features |=
        bit(c, 28, QUENCH_CPU_AVX) | bit(c, 12, QUENCH_CPU_FMA) | bit(c, 29, QUENCH_CPU_F16C);
  }
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features |= bit(b, 3, QUENCH_CPU_BMI) | bit(b, 8, QUENCH_CPU_BMI2);
  if (!ymm) return features;
  features |= bit(b, 5, QUENCH_CPU_AVX2);
  if (a < 1 || !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) a1 = 0;
  features |= bit(a1, 4, QUENCH_CPU_AVXVNNI);
  if (!zmm) return features;
  return features | bit(b, 16, QUENCH_CPU_AVX512F) | bit(b, 17, QUENCH_CPU_AVX512DQ) |
         bit(b, 28, QUENCH_CPU_AVX512CD) | bit(b, 30, QUENCH_CPU_AVX512BW) |
         bit(b, 31, QUENCH_CPU_AVX512VL) | bit(c, 11, QUENCH_CPU_AVX512VNNI) |
         bit(a1, 5, QUENCH_CPU_AVX512BF16) | bit(d, 23, QUENCH_CPU_AVX512FP16);
}

#elif defined(__aarch64__)

/* Bits of AT_HWCAP as the Linux ABI documents them (asimd 1, asimdhp 10, asimddp 20, sve 22), and
 * of AT_HWCAP2 (i8mm 13, bf16 14). */
uint64_t quench_rt_cpu_features(void) {
  const unsigned long caps = getauxval(AT_HWCAP);
  uint64_t features = 0;
  if (caps & (1ul << 1)) features |= QUENCH_CPU_NEON;
  if (caps & (1ul << 10)) features |= QUENCH_CPU_FP16;
  if (caps & (1ul << 20)) features |= QUENCH_CPU_DOTPROD;
  if (caps & (1ul << 22)) features |= QUENCH_CPU_SVE;
  const unsigned long more = getauxval(AT_HWCAP2);
  if (more & (1ul << 13)) features |= QUENCH_CPU_I8MM;
  if (more & (1ul << 14)) features |= QUENCH_CPU_BF16;
  return features;
}

#elif defined(__arm__)

/* Bits of AT_HWCAP as the Linux ABI documents them (neon 12, vfpv4 16, idiva 17, asimddp 24). */
uint64_t quench_rt_cpu_features(void) {
  const unsigned long caps = getauxval(AT_HWCAP);
  uint64_t features = 0;
  if (caps & (1ul << 12)) features |= QUENCH_CPU_NEON;
  if (caps & (1ul << 16)) features |= QUENCH_CPU_VFPV4;
  if (caps & (1ul << 17)) features |= QUENCH_CPU_HWDIV_ARM;
  if (caps & (1ul << 24)) features |= QUENCH_CPU_DOTPROD;
  return features;
}

#else

uint64_t quench_rt_cpu_features(void) { return 0; }

#endif

#if defined(__x86_64__)

/* Tile registers are 8 KB that the kernel saves only for processes that asked (Linux,
 * Documentation/arch/x86/xstate.rst). It refuses where a signal stack would become too small, or a
 * sandbox lacks the call. All threads have the permission, and child processes inherit it. */
static int may_use_tiles(void) {
  enum { kRequestPermission = 0x1023, kTileData = 18 };
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

static uint64_t x86_features(void) {
  uint32_t a, b, c, d, a1, b1, c1, d1;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !((c >> 27) & 1u)) return 0;
  const uint64_t tiles = UINT64_C(3) << 17; /* their configuration and their data */
  if ((saved_state() & tiles) != tiles) return 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  if (a < 1 || !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1)) a1 = 0;
  const uint64_t features = bit(d, 24, QUENCH_X86_AMX_TILE) | bit(d, 25, QUENCH_X86_AMX_INT8) |
                            bit(d, 22, QUENCH_X86_AMX_BF16) | bit(a1, 21, QUENCH_X86_AMX_FP16);
  return features != 0 && may_use_tiles() ? features : 0;
}

#else

static uint64_t x86_features(void) { return 0; } /* tiles exist in 64-bit mode only */

#endif

uint64_t quench_rt_cpu_family(uint32_t family) {
  switch (family) {
    case QUENCH_CPU_FAMILY_FIRST:
      return quench_rt_cpu_features();
    case QUENCH_CPU_FAMILY_X86:
      return x86_features();
    default:
      return 0;
  }
}

void quench_rt_cpu_feature_names(uint64_t features, char* text, size_t size) {
  quench_rt_cpu_family_names(QUENCH_CPU_FAMILY_FIRST, features, text, size);
}

void quench_rt_cpu_names(char* text, size_t size) {
  size_t used = 0;
  if (size != 0) text[0] = '\0';
  for (uint32_t family = 0; family < QUENCH_CPU_FAMILIES; ++family)
    used = quench_rt_add_names(family, quench_rt_cpu_family(family), text, used, size);
}

void quench_rt_cpu_family_names(uint32_t family, uint64_t features, char* text, size_t size) {
  if (size != 0) text[0] = '\0';
  (void)quench_rt_add_names(family, features, text, 0, size);
}

size_t quench_rt_add_names(uint32_t family, uint64_t features, char* text, size_t used,
                           size_t size) {
  static const struct {
    uint32_t family;
    uint64_t bit;
    const char* name;
  } kNames[] = {
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SSE2, "sse2"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SSE3, "sse3"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SSSE3, "ssse3"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SSE41, "sse4.1"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SSE42, "sse4.2"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_POPCNT, "popcnt"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_LZCNT, "lzcnt"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_BMI, "bmi"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVXVNNI, "avxvnni"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX, "avx"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX2, "avx2"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_FMA, "fma"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_F16C, "f16c"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_BMI2, "bmi2"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512F, "avx512f"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512BW, "avx512bw"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512DQ, "avx512dq"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512VL, "avx512vl"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512CD, "avx512cd"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512VNNI, "avx512vnni"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_NEON, "neon"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_VFPV4, "vfpv4"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_DOTPROD, "dotprod"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_FP16, "fp16"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_I8MM, "i8mm"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_SVE, "sve"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_HWDIV_ARM, "hwdiv"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_BF16, "bf16"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512BF16, "avx512bf16"},
      {QUENCH_CPU_FAMILY_FIRST, QUENCH_CPU_AVX512FP16, "avx512fp16"},
      {QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_TILE, "amx-tile"},
      {QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_INT8, "amx-int8"},
      {QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_BF16, "amx-bf16"},
      {QUENCH_CPU_FAMILY_X86, QUENCH_X86_AMX_FP16, "amx-fp16"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_60, "sm_60"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_61, "sm_61"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_62, "sm_62"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_70, "sm_70"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_72, "sm_72"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_75, "sm_75"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_80, "sm_80"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_86, "sm_86"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_87, "sm_87"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_89, "sm_89"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_SM_90, "sm_90"},
      {QUENCH_GPU_FAMILY_CUDA, QUENCH_CUDA_EMULATED, "emulated"},
  };
  if (used >= size) return used;
  for (size_t i = 0; i < sizeof kNames / sizeof kNames[0]; ++i) {
    if (kNames[i].family != family || !(features & kNames[i].bit)) continue;
    const int n = snprintf(text + used, size - used, "%s%s", used ? ", " : "", kNames[i].name);
    if (n < 0 || (size_t)n >= size - used) return size; /* full */
    used += (size_t)n;
    features &= ~kNames[i].bit;
  }
  if (features == 0) return used;
  const int n = snprintf(text + used, size - used, "%sothers", used ? ", " : "");
  return n < 0 || (size_t)n >= size - used ? size : used + (size_t)n;
}

/* Name and bits of one element, by ONNX number. */
static const struct {
  const char* name;
  uint8_t bits;
} kDtypes[] = {
    {"undefined", 0},  {"f32", 32},  {"u8", 8},       {"i8", 8},         {"u16", 16},
    {"i16", 16},       {"i32", 32},  {"i64", 64},     {"string", 0},     {"bool", 8},
    {"f16", 16},       {"f64", 64},  {"u32", 32},     {"u64", 64},       {"c64", 64},
    {"c128", 128},     {"bf16", 16}, {"f8e4m3fn", 8}, {"f8e4m3fnuz", 8}, {"f8e5m2", 8},
    {"f8e5m2fnuz", 8}, {"u4", 4},    {"i4", 4},       {"f4e2m1", 4},     {"f8e8m0", 8},
    {"u2", 2},         {"i2", 2},
};
#define NUM_DTYPES ((int32_t)(sizeof kDtypes / sizeof kDtypes[0]))

const char* quench_rt_dtype_name(int32_t dtype) {
  return dtype < 0 || dtype >= NUM_DTYPES ? "?" : kDtypes[dtype].name;
}

int64_t quench_rt_dtype_bytes(int32_t dtype, int64_t count) {
  if (dtype < 0 || dtype >= NUM_DTYPES || kDtypes[dtype].bits == 0 || count < 0) return -1;
  const int64_t bits = kDtypes[dtype].bits;
  if (count > (INT64_MAX - 7) / bits) return -1;
  return (count * bits + 7) / 8;
}

int quench_rt_fail(quench_rt_error* error, int code, const char* format, ...) {
  if (error == NULL) return code;
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  return code;
}

/* Large memory asks for large pages, which the system may have to give: blocked tensors are read from
 * dozens of places at once, each in a page of its own. */
void* quench_rt_aligned(uint64_t bytes) {
  enum { kLine = 64, kLargePage = 2 << 20, kLarge = 2 * kLargePage };
  if (bytes > SIZE_MAX - kLargePage) return NULL;
  const int large = bytes >= kLarge;
  void* memory = NULL;
  if (posix_memalign(&memory, large ? kLargePage : kLine, bytes == 0 ? kLine : (size_t)bytes) != 0)
    return NULL;
#ifdef MADV_HUGEPAGE
  if (large) (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
  return memory;
}
