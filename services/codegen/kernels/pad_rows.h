// Copies rows of an image with a border, blocked by channels.
#pragma once

#include <cstdint>

#include "services/codegen/forms/vector_builder.h"
#include "services/codegen/kernels/byte_root.h"

namespace quench::codegen {

struct PaddedRows {
  int64_t channels = 1;  // of the image
  int64_t blocks = 1;    // of channels, all copied
  // source is [channels][height][width], else [blocks][height][width][block]
  bool row_major = false;
  int lanes = 8;      // that are copied at once
  int64_t block = 0;  // channels of a pixel of a block of the source; 0: `lanes`
  // Words of four bytes of a pixel of the destination: `lanes` floats, half as many words of bf16 and
  // f16 or a quarter as many of bytes; fewer for a row-major source with few channels.
  int64_t pixel_words = 8;
  DataType type = DataType::kF32;  // of the source; or f16, bf16, i8, u8
  int64_t fill = 0;                // of the border, a byte; floats have 0
  RunZero run_fill;                // instead of `fill`, where it is valid
  // The destination holds f32: f16 and bf16 widened; blocked bytes minus `fill`.
  bool to_floats = false;
  Int height, width;  // of the source
  int64_t left = 0;   // pixels of border before each row
  Int row_pixels;     // of a destination row; columns of the source beyond it are not copied
  // strides of the destination [blocks][rows][row_pixels][pixel_words]
  Int row_bytes, block_bytes;
};

// Rows first .. first + rows - 1 of the source; those outside of it become border.
void PadRows(VectorBuilder& b, const PaddedRows& p, Ptr source, Ptr destination, Int first,
             Int rows);

}  // namespace quench::codegen
