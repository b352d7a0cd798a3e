// Words of 32 bits: several narrower numbers, whose products a lane adds up at once.
#pragma once

#include <functional>

#include "services/codegen/forms/tile_emitter.h"

namespace quench::codegen {

// Weights lie as [blocks][kh][kw][words][tile vectors][lanes], then [tail][tile vectors][lanes].
class WordEmitter : public TileEmitter {
 public:
  using TileEmitter::TileEmitter;

 protected:
  // (sum, weights) -> their sum with the products of a word of every lane.
  using AddProducts = std::function<Vec(Vec sum, Vec weights)>;
  // `word` has the same word in all lanes.
  virtual AddProducts Products(Vec word) = 0;
  // Before word c of the body is multiplied.
  virtual void BeginWord(int /*c*/) {}

  void Multiply(Ptr input, int channels) override;
  // Multiplies word c; `word` of every pixel comes from load(pixel), in all lanes.
  void AddWord(int c, const std::function<Vec(Int pixel)>& load);
  // Passes the weights of so many words.
  virtual void Pass(int words);
};

}  // namespace quench::codegen
