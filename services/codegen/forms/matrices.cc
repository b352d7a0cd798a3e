#include "services/codegen/forms/matrices.h"

#include <fmt/format.h>

#include <algorithm>

#include "services/codegen/forms/matrix_tile.h"

namespace quench::codegen {
namespace {

constexpr int kRows = MatrixUnit::kRows, kWords = MatrixUnit::kWords;

// The registers of a tile of this size.
MatrixShapes ShapesOf(const Tile& tile, int lanes, int words) {
  MatrixShapes shapes;
  shapes.blocks = tile.y == 2 || tile.x > kRows ? 2 : 1;
  shapes.rows = tile.y == 1 && shapes.blocks == 2 ? (tile.x + 1) / 2 : tile.x;
  shapes.columns = tile.vectors * lanes / kWords;
  shapes.words = words;
  return shapes;
}

// Cycles of a tile, measured on Emerald Rapids: a product takes a cycle for each row of the left
// matrix, and eight at least. Pixels come from the second cache for their first tap: tiles of other panels
// have pushed them out of the nearest.
double TileCycles(const MatrixShapes& shapes, double steps, double taps) {
  constexpr double kLeastProduct = 8.5, kStart = 60, kStoreRow = 3.5;
  constexpr double kNearLine = 0.5,
                   kFarLine = 1.25;   // loads from the nearest cache, and from the second
  constexpr double kNear = 24 << 10;  // bytes of weights that stay in the nearest
  const double rows = shapes.rows, blocks = shapes.blocks, columns = shapes.columns;
  const double products = blocks * columns * std::max(rows + 0.5, kLeastProduct);
  const double pixels = blocks * rows, weights = columns * kWords;
  const bool far = steps * weights * 64 > kNear;
  const double loads =
      pixels * (kNearLine + (kFarLine - kNearLine) / taps) + weights * (far ? kFarLine : kNearLine);
  const double step = std::max(products, loads) + 2;
  return kStart + steps * step + kStoreRow * blocks * columns * rows;
}

// Cycles of all tiles (of a pixel where the width is symbolic).
double TotalCycles(const TileProblem& problem, const Tile& tile, int lanes) {
  const double steps =
      static_cast<double>(std::max<int64_t>(1, (problem.steps + kWords - 1) / kWords));
  const Split panels = SplitEvenly(problem.vectors, tile.vectors);
  const auto row = [&](const Tile& part) {
    double cycles = 0;
    for (const auto& [count, vectors] :
         {std::pair(panels.bigs, panels.big), std::pair(panels.smalls, panels.big - 1)}) {
      Tile narrow = part;
      narrow.vectors = static_cast<int>(vectors);
      if (count > 0) {
        cycles += static_cast<double>(count) *
                  TileCycles(ShapesOf(narrow, lanes, kWords), steps, problem.taps);
      }
    }
    return cycles;
  };
  if (!problem.width) return row(tile) / tile.x;
  const double across = static_cast<double>(SplitEvenly(*problem.width, tile.x).parts());
  if (!problem.height) return across * row(tile) / tile.y;
  Tile one = tile;
  one.y = 1;
  const int64_t pairs = *problem.height / tile.y, rest = *problem.height % tile.y;
  return across * (static_cast<double>(pairs) * row(tile) + static_cast<double>(rest) * row(one));
}

}  // namespace

std::vector<Tile> MatrixForm::Tiles(const Target& target, const TileProblem& problem) const {
  const int lanes = target.f32_lanes(), per_column = std::max(1, kWords / lanes);
  std::vector<Tile> tiles;
  for (int y = 1; y <= 2; ++y) {
    const bool rows = problem.height && problem.width && *problem.height >= y;
    if (y == 2 && !rows) break;
    for (int x = problem.width ? 1 : 2 * kRows; x <= (y == 1 ? 2 * kRows : kRows); ++x) {
      if (problem.width && SplitEvenly(*problem.width, x).big != x) continue;
      const int blocks = y == 2 || x > kRows ? 2 : 1;
      for (int column = 1; column <= MatrixShapes::MostColumns(blocks); ++column) {
        Tile tile{y, x, column * per_column, 0};
        // Panels of whole columns.
        if (tile.vectors > problem.vectors ||
            (per_column > 1 && problem.vectors % tile.vectors != 0))
          break;
        tile.cycles = TotalCycles(problem, tile, lanes);
        tiles.push_back(tile);
      }
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.cycles < b.cycles; });
  constexpr size_t kMost = 4;
  if (tiles.size() > kMost) tiles.resize(kMost);
  return tiles;
}

int MatrixForm::WordsOfBody(int64_t run) const {
  const int64_t bodies = (run + kWords - 1) / kWords;
  return bodies > 0 && run % bodies == 0 ? static_cast<int>(run / bodies) : -1;
}

std::shared_ptr<MatrixRegisters> MatrixForm::Registers(VectorBuilder& b, const Tile& tile,
                                                       const WeightPanels& panels,
                                                       Int pixels) const {
  const auto lanes = static_cast<int>(panels.lanes);
  const MatrixShapes shapes = ShapesOf(tile, lanes, panels.unroll);
  // Without pixels no tile is computed, but registers of no rows are a fault.
  const Int rows = Max(Min(b.I(shapes.rows), pixels), b.I(1));
  return std::make_shared<MatrixRegisters>(b, products, shapes, rows, lanes);
}

TileCode MatrixForm::Code(VectorBuilder& b, const WeightPanels& /*panels*/,
                          const TileOperands& operands) const {
  // If the zero point is one of each run: vectors that are multiplied by it.
  const Ptr factors = operands.zero.valid() ? operands.pack(2) : Ptr{};
  return [&b, registers = operands.registers, zero = operands.zero, factors,
          first = operands.vector](const MicroReduction& reduction, const MicroTile& tile,
                                   const StoreSum& store) {
    const Int rows = registers->rows();
    const Int stored = tile.stored.valid() ? tile.stored : b.I(0);
    const Int pixels = tile.pixels.valid() ? tile.pixels : b.I(tile.x);
    MatrixTile matrices;
    matrices.stride = tile.x_stride;
    matrices.vectors = tile.vectors;
    matrices.weights = tile.weights;
    matrices.bias = tile.bias;
    if (zero.valid()) matrices.bias = registers->Moved(tile, factors, first, zero);
    matrices.prefetch = tile.prefetch;
    matrices.prefetch_lines = tile.prefetch_lines;
    matrices.blocks.push_back({tile.input, Min(stored, rows)});
    const bool side_by_side = tile.y == 1 && tile.x > kRows;
    const Int second = side_by_side ? pixels - rows : b.I(0);  // first pixel of the second block
    if (side_by_side)
      matrices.blocks.push_back({tile.input + second * tile.x_stride, Max(stored, rows) - second});
    if (tile.y == 2) matrices.blocks.push_back({tile.input + tile.y_stride, Min(stored, rows)});
    registers->Emit(reduction, matrices, [&](int block, Int row, int v, Vec value) {
      const bool next = block == 1;
      store(b.I(next && tile.y == 2 ? 1 : 0), next && side_by_side ? row + second : row, v, value);
    });
  };
}

std::string MatrixForm::ToString() const {
  static constexpr const char* kOf[] = {"bf16", "f16", "bytes", "signed bytes"};
  return fmt::format("matrices of {}", kOf[static_cast<size_t>(products)]);
}

}  // namespace quench::codegen
