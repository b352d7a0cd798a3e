// A form: what is multiplied, and how it lies in memory. Plans of all families hold one, and ask it
// wherever that matters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/codegen/forms/register_tile.h"
#include "services/codegen/forms/shared_panels.h"
#include "services/codegen/forms/tile.h"

namespace quench::codegen {

// How a kernel lays out constant weights: panels of words, [row][word of the run][vectors of the
// panel][lanes]. The words of the input under a run lie side by side in memory.
struct WeightPanels {
  int64_t groups = 1;  // of a convolution: each has all panels of the split
  PanelSplit split = {};
  int64_t lanes = 8;
  int64_t rows = 1, run = 1;
  int64_t rest = 0;   // numbers after the last whole word
  int64_t twice = 0;  // words that are multiplied a second time
  int unroll = 8;     // words of a body
  SharedPanels shared = {};

  int64_t words() const { return rows * run; }
};

// The transform of constant weights: the kernel's own name for panels takes the suffix, and these
// parameters beside the kernel's.
struct WeightPack {
  std::string suffix;
  std::map<std::string, int64_t> params;
};

class MatrixRegisters;  // matrix_tile.h

// Everything that a tile may read beside its input and its weights.
struct TileOperands {
  // Start of a pack of the candidate's: 0 the weights, 1 what sums start from or scales, 2 what a
  // zero point is multiplied by, or zero points.
  std::function<Ptr(int)> pack = {};
  Int panel = {};   // of those of all groups
  Int vector = {};  // the tile's first, of those of all groups
  // Whole tiles only: what Form::Registers gave.
  std::shared_ptr<MatrixRegisters> registers = {};
  // Bytes only: the highest bit of each of the input is changed first; the zero point where it is one of
  // each run, as an i32 number; how many are left over after the last word (0 to 3), if any may be; words
  // that are multiplied a second time, as offsets from MicroTile::input.
  bool flip = false;
  Vec zero = {};
  Int rest = {};
  std::vector<Int> again = {};
};

class Form {
 public:
  virtual ~Form() = default;

  // ---- words ----

  // Number of neighbours on the summed axis that a lane multiplies at once.
  virtual int64_t unit() const { return 1; }
  // Size of a word of constant weights.
  virtual int64_t weight_bits() const { return 32; }
  // Whether the input is f32 where it is multiplied: f16 and bf16 are widened before.
  virtual bool reads_floats() const { return false; }
  // Whether variants of one library may share panels of constants.
  virtual bool shares_panels() const { return false; }

  // ---- tiles ----

  // Tiles for a problem, cheapest first; the form knows the cost of a step.
  virtual std::vector<Tile> Tiles(const Target& target, const TileProblem& problem) const;
  // Words of a body.
  virtual int Unroll(const Target& target) const { return StepsOfBody(target); }
  // Words of each body of a run, where a form cannot choose: 0 if it can, -1 if there is no such number.
  virtual int WordsOfBody(int64_t /*run*/) const { return 0; }
  // Channels of a block of a convolution's input in memory.
  virtual int64_t InputBlock(int lanes) const { return lanes; }
  // Whether all tiles of an axis are of one size: the last ones begin with pixels that others have stored.
  virtual bool whole_tiles() const { return false; }
  // Registers that the tiles of a kernel share, until they are released; null where they share none.
  // `pixels`: of a row of such a tile.
  virtual std::shared_ptr<MatrixRegisters> Registers(VectorBuilder& /*b*/, const Tile& /*tile*/,
                                                     const WeightPanels& /*panels*/,
                                                     Int /*pixels*/) const {
    return nullptr;
  }
  // Whole words that are read together, and which no end of a body divides.
  virtual int together() const { return 1; }
  // Words of a block of a product, whose sums are added up by themselves; 0: any number.
  virtual int64_t block() const { return 0; }

  // ---- constant weights ----

  // Bytes of a vector of columns.
  virtual int64_t VectorBytes(const WeightPanels& panels) const;
  virtual WeightPack Pack(const WeightPanels& /*panels*/) const { return {}; }
  // Whether tasks make floats of a panel, in scratch, before tiles multiply it.
  virtual bool unpacks() const { return false; }
  // Writes that panel: `vectors` vectors of floats.
  virtual void Unpack(VectorBuilder& /*b*/, const WeightPanels& /*panels*/,
                      const TileOperands& /*operands*/, Ptr /*panel*/, int /*vectors*/,
                      Ptr /*scratch*/) const {}

  // ---- code and report ----

  // The code of a tile. Whatever all of a tile shares is read at once, by this call.
  virtual TileCode Code(VectorBuilder& b, const WeightPanels& panels,
                        const TileOperands& operands) const = 0;
  // "bf16 in pairs"; empty for f32.
  virtual std::string ToString() const { return ""; }
  // As Candidate.slow.
  virtual std::string Slow() const { return ""; }
};

}  // namespace quench::codegen
