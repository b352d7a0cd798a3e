/* Which of a library's variants runs: what they need of the CPU and of a GPU, and what there is. */
#include <stdlib.h>
#include <string.h>

#include "common/runtime/rt_internal.h"

const quench_device_code* quench_rt_device_code(const quench_variant* variant) {
  return QUENCH_RT_HAS(variant, device) ? variant->device : NULL;
}

/* Features of the variant's list, behind the struct's first version. A variant that claims to have a list,
 * and has none, needs what nobody knows. */
static uint32_t num_others(const quench_variant* variant) {
  if (!(variant->cpu_features & QUENCH_CPU_OTHERS)) return 0;
  return QUENCH_RT_HAS(variant, features) ? variant->num_features : 0;
}

/* What the variant needs of the first family, and this CPU lacks. */
static uint64_t missing_of_first(const quench_variant* variant) {
  const uint64_t mark = num_others(variant) > 0 ? QUENCH_CPU_OTHERS : 0;
  return variant->cpu_features & ~mark & ~quench_rt_cpu_features();
}

/* The CPU is asked for other families only where a variant needs them. */
static uint64_t missing_of(const quench_cpu_features* need) {
  return need->family == QUENCH_GPU_FAMILY_CUDA ? 0
                                                : need->bits & ~quench_rt_cpu_family(need->family);
}

static int cpu_runs(const quench_variant* variant) {
  if (missing_of_first(variant) != 0) return 0;
  const uint32_t others = num_others(variant);
  for (uint32_t i = 0; i < others; ++i) {
    if (missing_of(&variant->features[i]) != 0) return 0;
  }
  return 1;
}

/* `features` are QUENCH_CUDA_*. */
static int gpu_runs(const quench_variant* variant, uint64_t features) {
  const uint32_t others = num_others(variant);
  for (uint32_t i = 0; i < others; ++i) {
    const quench_cpu_features* need = &variant->features[i];
    if (need->family == QUENCH_GPU_FAMILY_CUDA && (need->bits & ~features) != 0) return 0;
  }
  return 1;
}

/* The last one that runs, of those without device code if `gpu` is NULL, else of those with. */
static const quench_variant* best_of(const quench_model* model, const quench_rt_gpu* gpu) {
  for (uint32_t i = model->num_variants; i-- > 0;) {
    const quench_variant* variant = model->variants[i];
    if ((quench_rt_device_code(variant) != NULL) != (gpu != NULL) || !cpu_runs(variant)) continue;
    if (gpu_runs(variant, gpu != NULL ? gpu->features : 0)) return variant;
  }
  return NULL;
}

/* The first variant, which needs least, without or with device code; NULL: there is none. */
static const quench_variant* least_of(const quench_model* model, int with_device_code) {
  for (uint32_t i = 0; i < model->num_variants; ++i) {
    if ((quench_rt_device_code(model->variants[i]) != NULL) == with_device_code)
      return model->variants[i];
  }
  return NULL;
}

static int fail_of_cpu(const quench_variant* variant, const char* name, quench_rt_error* error) {
  char missing[256] = "";
  size_t used = quench_rt_add_names(QUENCH_CPU_FAMILY_FIRST, missing_of_first(variant), missing, 0,
                                    sizeof missing);
  for (uint32_t i = 0; i < num_others(variant); ++i) {
    const quench_cpu_features* need = &variant->features[i];
    used = quench_rt_add_names(need->family, missing_of(need), missing, used, sizeof missing);
  }
  return quench_rt_fail(error, QUENCH_RT_CPU,
                        "`%s` cannot run here: variant `%s` needs %s, which this CPU lacks", name,
                        variant->name, missing);
}

static int fail_of_gpu(const quench_variant* variant, const char* name, uint32_t index,
                       const quench_rt_gpu* gpu, quench_rt_error* error) {
  if (gpu_runs(variant, gpu->features)) return fail_of_cpu(variant, name, error);
  return quench_rt_fail(error, QUENCH_RT_CPU, "`%s` needs %s, GPU %u (%s) has %s", name,
                        quench_rt_device_code(variant)->arch, index, gpu->name, gpu->arch);
}

int quench_rt_default_variant(const quench_model* model, const char* name,
                              const quench_variant** variant, quench_rt_error* error) {
  const quench_variant *least = least_of(model, 0), *least_gpu = least_of(model, 1);
  quench_rt_gpu gpu = {.size = sizeof gpu};
  quench_rt_error why;
  int found = QUENCH_RT_DEVICE;
  *variant = NULL;
  if (least_gpu != NULL) found = quench_rt_find_gpu(0, &gpu, &why);
  if (found == QUENCH_RT_OK) *variant = best_of(model, &gpu);
  if (*variant == NULL) *variant = best_of(model, NULL);
  if (*variant != NULL) return QUENCH_RT_OK;
  if (least != NULL) return fail_of_cpu(least, name, error);
  if (found == QUENCH_RT_OK) return fail_of_gpu(least_gpu, name, 0, &gpu, error);
  return quench_rt_fail(error, found, "`%s` cannot run here: %s", name, why.text);
}

/* "cuda" and "cuda:N" */
static int is_gpu(const char* device, uint32_t* index) {
  *index = 0;
  if (strncmp(device, "cuda", 4) != 0) return 0;
  if (device[4] == '\0') return 1;
  const char* digits = device + 5;
  const size_t count = strspn(digits, "0123456789");
  if (device[4] != ':' || count == 0 || count > 6 || digits[count] != '\0') return 0;
  *index = (uint32_t)strtoul(digits, NULL, 10);
  return 1;
}

int quench_rt_choose_variant(const quench_rt_model* model, const char* device,
                             const quench_variant** variant, uint32_t* index,
                             quench_rt_error* error) {
  const quench_model* about = model->model;
  *index = 0;
  *variant = model->variant;
  if (device == NULL) return QUENCH_RT_OK;
  if (strcmp(device, "cpu") == 0) {
    *variant = best_of(about, NULL);
    if (*variant != NULL) return QUENCH_RT_OK;
    const quench_variant* least = least_of(about, 0);
    if (least != NULL) return fail_of_cpu(least, about->name, error);
    return quench_rt_fail(error, QUENCH_RT_CPU, "`%s` has code for GPUs only", about->name);
  }
  if (!is_gpu(device, index)) {
    return quench_rt_fail(error, QUENCH_RT_INVALID,
                          "there is no device `%s`: it is `cpu`, `cuda` or `cuda:` and a number",
                          device);
  }
  const quench_variant* least = least_of(about, 1);
  if (least == NULL)
    return quench_rt_fail(error, QUENCH_RT_CPU, "`%s` has no code for GPUs", about->name);
  quench_rt_gpu gpu = {.size = sizeof gpu};
  const int found = quench_rt_find_gpu(*index, &gpu, error);
  if (found != QUENCH_RT_OK) return found;
  *variant = best_of(about, &gpu);
  if (*variant != NULL) return QUENCH_RT_OK;
  return fail_of_gpu(least, about->name, *index, &gpu, error);
}
