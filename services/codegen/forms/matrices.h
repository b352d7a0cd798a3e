// Products of matrices in registers of the target (Target::matrices).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/fields.h"
#include "services/codegen/forms/form.h"

namespace quench::codegen {

// Tiles are up to two blocks of 16 pixels, in one row of an image or in two, by columns of 16 output channels.
struct MatrixForm final : Form {
  static constexpr const char kName[] = "matrices";
  explicit MatrixForm(MatrixProducts matrix_products = MatrixProducts::kBfloats)
      : products(matrix_products) {}
  MatrixProducts products;
  QUENCH_FIELDS(products)

  bool bytes() const {
    return products == MatrixProducts::kUnsigned || products == MatrixProducts::kSigned;
  }
  int64_t unit() const override { return bytes() ? 4 : 2; }
  std::vector<Tile> Tiles(const Target& target, const TileProblem& problem) const override;
  int WordsOfBody(int64_t run) const override;
  int64_t InputBlock(int /*lanes*/) const override { return unit() * MatrixUnit::kWords; }
  bool whole_tiles() const override { return true; }
  std::shared_ptr<MatrixRegisters> Registers(VectorBuilder& b, const Tile& tile,
                                             const WeightPanels& panels, Int pixels) const override;
  WeightPack Pack(const WeightPanels& /*panels*/) const override {
    return {bytes() ? "_bytes" : "_pairs", {}};
  }
  TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                const TileOperands& operands) const override;
  std::string ToString() const override;  // "matrices of bf16"
};

}  // namespace quench::codegen
