// Named transforms from constants to the bytes that kernels read. Plain C++, deterministic, no
// LLVM. Elements are f32 unless said otherwise; the output has no padding beyond what a row says.
// Panels of f16 and bf16 constants keep the type; channels and depthwise become f32.
//
//   channels                 {channels, padded, scale}: 1 or `channels` elements, f32 or i32 ->
//                            `padded` of them, the rest 0; f32 times `scale` (bits of an f32) when
//                            given
//   byte_sums                {axis, channels, padded, factor, zero}: weights of i8 or u8, and an i32
//                            bias of 1 or `channels` elements -> `padded` i32, the rest 0: bias +
//                            factor * (sum of the weights minus `zero` for that index of `axis`),
//                            modulo 2^32
//   conv_panels_bytes        as conv_panels, from i8 or u8 minus `zero`: `block` counts words of four
//                            channels -> [group][panel][ic block][kh][kw][word][vectors][lanes][4];
//                            each panel ends with the second parts of the weights that two bytes make
//                            (common/ops/byte_weights.h)
//   conv_panels_picked       {as conv_panels, zero, run, most}: PackPickedPairs of what
//                            conv_panels_bytes would give (picked_pairs.h)
//   gemm_panels_picked       {lanes, vectors, run, most}: of what gemm_panels_bytes gives; `run` whole
//                            words
//   conv_panels_pairs        as conv_panels, of bf16 or f16: `block` counts words of two channels
//   gemm_panels_pairs        as gemm_panels, of bf16 or f16: [ceil(k / 2)][vectors of the panel][lanes][2]
//   gemm_panels_bytes        {lanes, vectors}: i8 [k, n] ->
//                            [panel][ceil(k / 4)][vectors of the panel][lanes][4], rows beyond k 0
//   gemm_panels_stored       {lanes, vectors, block}: [k, n] of i8, u8 (minus 128), i4 (plus 8) or
//                            u4 -> [panel][k][vectors of the panel][lanes], a byte each; of four
//                            bits up to eight rows of a block of rows share a word of four bytes,
//                            the first in the lowest bits
//   gemm_scales              {lanes, vectors}: f32 [blocks, n] ->
//                            [panel][blocks][vectors of the panel][lanes]
//   gemm_zeros               {lanes, vectors, shift}: scales and, if any, zero points of the same
//                            shape -> zero point - shift, as gemm_scales
//   conv_panels              {groups, merged, lanes, block, vectors}: [oc, ic/groups, kh, kw] (or
//   without kh) ->
//                            [group][panel][ic block][kh][kw][channel of the block][vectors of the
//                            panel][lanes], where `merged` groups form one (zero off the diagonal)
//   gemm_panels              {lanes, vectors, transposed, scale}: [batch.., k, n], or [batch.., n,
//   k] when transposed ->
//                            [batch][panel][k][vectors of the panel][lanes], times `scale` when
//                            given: then f32
//   gpu_rows                 {rows, row_bytes, channels, groups, transposed, zero, tf32}: [oc, ic, kh, kw] (or without
//                            kh) when `channels` is given, else [k, n], or [n, k] when transposed -> `rows` rows of
//                            `row_bytes`, one for each output channel or column: [kh][kw][channels], or k, then
//                            zeros; i8 or u8 minus `zero` become i8, f32 is rounded to TF32 where `tf32` is
//                            given, others stay as they are; `groups` of output channels have equal
//                            shares of the rows, and begin with them
//   depthwise                {lanes, zero}: [c, 1, kh, kw], f32, or i8 or u8 minus `zero` ->
//   [c / lanes][kh][kw][lanes] innermost, padded with 0
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ir/tensor.h"
#include "services/codegen/kernels/kernel.h"

namespace quench::codegen {

// The bytes; INTERNAL when the transform is unknown or does not take these sources.
absl::StatusOr<std::vector<std::byte>> Pack(const PackSpec& spec,
                                            std::span<const Tensor* const> sources);

}  // namespace quench::codegen
