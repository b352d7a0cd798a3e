// The structs of common/runtime/abi.h as generated code reads and writes them.
//
// Each is a list of its fields in order. Types and offsets come from abi.h itself and are compared
// with the list when this header is compiled, so that a change there that the list lacks is an
// error; LLVM lays the structs out for the target, of 32 bits or 64, from the same list.
#pragma once

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>

#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "common/runtime/abi.h"
#include "common/runtime/device/emulated.h"

namespace quench::codegen {

enum class AbiType { kI32, kI64, kPointer };

template <typename T>
constexpr AbiType AbiTypeOf() {
  if constexpr (std::is_pointer_v<T>) {
    return AbiType::kPointer;
  } else {
    static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    return sizeof(T) == 4 ? AbiType::kI32 : AbiType::kI64;
  }
}

struct AbiField {
  AbiType type;
  size_t offset;
  size_t size;
};

// For a struct of abi.h: its fields as enumerators, and kFields by these.
template <typename Struct>
struct AbiStruct;

// The fields follow one another without holes and fill the struct: none is missing, all are in
// order. (abi.h names its padding `reserved`.)
template <typename Struct>
constexpr bool IsWhole() {
  size_t end = 0;
  for (const AbiField& field : AbiStruct<Struct>::kFields) {
    if (field.offset != end) return false;
    end += field.size;
  }
  return end == sizeof(Struct);
}

#define QUENCH_ABI_FIELD_NAME(name) name,
#define QUENCH_ABI_FIELD(name) \
  AbiField{AbiTypeOf<decltype(Type::name)>(), offsetof(Type, name), sizeof(decltype(Type::name))},
#define QUENCH_ABI_STRUCT(type, FIELDS)                                        \
  template <>                                                                  \
  struct AbiStruct<type> {                                                     \
    using Type = type;                                                         \
    enum Field : unsigned { FIELDS(QUENCH_ABI_FIELD_NAME) };                   \
    static constexpr auto kFields = std::to_array({FIELDS(QUENCH_ABI_FIELD)}); \
  };                                                                           \
  static_assert(IsWhole<type>(), #type " is not what abi.h declares")

// clang-format off
#define QUENCH_DIM_FIELDS(F) F(value) F(symbol) F(reserved)
QUENCH_ABI_STRUCT(quench_dim, QUENCH_DIM_FIELDS);

#define QUENCH_QUANTIZATION_FIELDS(F) F(size) F(axis) F(count) F(scales) F(zero_points)
QUENCH_ABI_STRUCT(quench_quantization, QUENCH_QUANTIZATION_FIELDS);

#define QUENCH_TENSOR_INFO_FIELDS(F) \
  F(size) F(dtype) F(rank) F(in_place_of) F(name) F(dims) F(quantization)
QUENCH_ABI_STRUCT(quench_tensor_info, QUENCH_TENSOR_INFO_FIELDS);

#define QUENCH_SYMBOL_INFO_FIELDS(F) \
  F(size) F(kind) F(name) F(min) F(max) F(multiple_of) F(input) F(axis)
QUENCH_ABI_STRUCT(quench_symbol_info, QUENCH_SYMBOL_INFO_FIELDS);

#define QUENCH_NODE_INFO_FIELDS(F) F(size) F(reserved) F(name) F(op) F(kernel)
QUENCH_ABI_STRUCT(quench_node_info, QUENCH_NODE_INFO_FIELDS);

#define QUENCH_PLAN_FIELDS(F) \
  F(size) F(error_node) F(error_message) F(slots) F(arena_bytes) F(scratch_bytes) \
  F(arena_lower_bound) F(device_arena_bytes) F(device_scratch_bytes) F(device_arena_lower_bound)
QUENCH_ABI_STRUCT(quench_plan, QUENCH_PLAN_FIELDS);

#define QUENCH_HOST_FIELDS(F) \
  F(size) F(num_threads) F(host) F(parallel_for) F(alloc) F(free) F(on_tensor) F(on_node) \
  F(cancelled) F(launch) F(transfer)
QUENCH_ABI_STRUCT(quench_host, QUENCH_HOST_FIELDS);

#define QUENCH_RUN_FIELDS(F) \
  F(size) F(error_node) F(error_message) F(host) F(inputs) F(outputs) F(slots) F(arena) \
  F(scratch) F(rng_seed) F(device_inputs) F(device_outputs) F(device_arena) F(device_scratch) \
  F(device_weights) F(device_status)
QUENCH_ABI_STRUCT(quench_run, QUENCH_RUN_FIELDS);

#define QUENCH_CPU_FEATURES_FIELDS(F) F(family) F(reserved) F(bits)
QUENCH_ABI_STRUCT(quench_cpu_features, QUENCH_CPU_FEATURES_FIELDS);

#define QUENCH_VARIANT_FIELDS(F) \
  F(size) F(num_slots) F(cpu_features) F(name) F(num_nodes) F(num_taps) F(nodes) F(taps) \
  F(plan) F(run) F(num_features) F(reserved) F(features) F(device)
QUENCH_ABI_STRUCT(quench_variant, QUENCH_VARIANT_FIELDS);

#define QUENCH_DEVICE_KERNEL_FIELDS(F) F(name) F(threads) F(shared_bytes)
QUENCH_ABI_STRUCT(quench_device_kernel, QUENCH_DEVICE_KERNEL_FIELDS);

#define QUENCH_DEVICE_RANGE_FIELDS(F) F(offset) F(bytes) F(device_offset)
QUENCH_ABI_STRUCT(quench_device_range, QUENCH_DEVICE_RANGE_FIELDS);

#define QUENCH_DEVICE_CHECK_FIELDS(F) F(message) F(node) F(reserved)
QUENCH_ABI_STRUCT(quench_device_check, QUENCH_DEVICE_CHECK_FIELDS);

#define QUENCH_DEVICE_CODE_FIELDS(F) \
  F(size) F(num_kernels) F(num_ranges) F(num_checks) F(arch) F(image) F(image_bytes) F(kernels) \
  F(weights) F(ranges) F(weight_bytes) F(checks) F(input_sides) F(output_sides)
QUENCH_ABI_STRUCT(quench_device_code, QUENCH_DEVICE_CODE_FIELDS);

#define QUENCH_STATE_INFO_FIELDS(F) F(size) F(input) F(output) F(reserved) F(initial)
QUENCH_ABI_STRUCT(quench_state_info, QUENCH_STATE_INFO_FIELDS);

#define QUENCH_MODEL_FIELDS(F) \
  F(size) F(magic) F(abi_version) F(machine) F(name) F(uuid) F(fingerprint) F(producer) \
  F(num_inputs) F(num_outputs) F(num_symbols) F(num_variants) F(inputs) F(outputs) F(symbols) \
  F(variants) F(num_cores) F(num_labels) F(labels) F(preprocessing) F(target) \
  F(producer_revision) F(source_digest) F(description) F(num_states) F(reserved) F(states)
QUENCH_ABI_STRUCT(quench_model, QUENCH_MODEL_FIELDS);

#define QUENCH_REGISTRATION_FIELDS(F) F(model) F(next)
QUENCH_ABI_STRUCT(quench_registration, QUENCH_REGISTRATION_FIELDS);

#define QUENCH_EMULATED_THREAD_FIELDS(F) F(thread) F(block) F(threads) F(blocks) F(shared) F(ops)
QUENCH_ABI_STRUCT(quench_emulated_thread, QUENCH_EMULATED_THREAD_FIELDS);

#define QUENCH_EMULATED_OPS_FIELDS(F) \
  F(size) F(reserved) F(barrier) F(shuffle_xor) F(shuffle) F(atomic_min) F(copy_async) F(commit) \
  F(wait) F(load_matrices) F(mma) F(access) F(copy_part)
QUENCH_ABI_STRUCT(quench_emulated_ops, QUENCH_EMULATED_OPS_FIELDS);

#define QUENCH_EMULATED_ENTRY_FIELDS(F) \
  F(name) F(kernel) F(argument_bytes) F(num_arguments) F(cooperates)
QUENCH_ABI_STRUCT(quench_emulated_entry, QUENCH_EMULATED_ENTRY_FIELDS);

#define QUENCH_EMULATED_IMAGE_FIELDS(F) F(magic) F(num_entries) F(entries)
QUENCH_ABI_STRUCT(quench_emulated_image, QUENCH_EMULATED_IMAGE_FIELDS);
// clang-format on

// ---- In LLVM's types ----

inline llvm::Type* LlvmType(llvm::LLVMContext& context, AbiType type) {
  switch (type) {
    case AbiType::kI32:
      return llvm::Type::getInt32Ty(context);
    case AbiType::kI64:
      return llvm::Type::getInt64Ty(context);
    case AbiType::kPointer:
      break;
  }
  return llvm::PointerType::getUnqual(context);
}

// The struct's first `fields` fields.
template <typename Struct>
llvm::StructType* LlvmType(llvm::LLVMContext& context,
                           size_t fields = AbiStruct<Struct>::kFields.size()) {
  std::vector<llvm::Type*> types;
  for (size_t i = 0; i < fields; ++i)
    types.push_back(LlvmType(context, AbiStruct<Struct>::kFields[i].type));
  return llvm::StructType::get(context, types);
}

// The address and the value of a field of the struct at `base`.
template <typename Struct>
llvm::Value* AbiFieldAddress(llvm::IRBuilderBase& b, llvm::Value* base,
                             typename AbiStruct<Struct>::Field field) {
  return b.CreateStructGEP(LlvmType<Struct>(b.getContext()), base, field);
}
template <typename Struct>
llvm::Value* LoadAbiField(llvm::IRBuilderBase& b, llvm::Value* base,
                          typename AbiStruct<Struct>::Field field) {
  return b.CreateLoad(LlvmType(b.getContext(), AbiStruct<Struct>::kFields[field].type),
                      AbiFieldAddress<Struct>(b, base, field));
}

}  // namespace quench::codegen
