// Code shared by LSTM, GRU and RNN: shapes, activations, the projection of the inputs and the loop
// over time.
//
// X [time, batch, input], W [directions, gates * hidden, input], R [directions, gates * hidden,
// hidden], B [directions, 2 * gates * hidden], sequence_lens [batch], initial_h [directions, batch,
// hidden]; with `layout` 1 the batch axis of X, Y and the states comes first.
//
// `q.lstm`, `q.gru` and `q.rnn` are the same with the products by W done: input 0 is [time, batch,
// directions * gates * hidden], biases added; input 1 is left out; R is [directions, gates * hidden
// / block, hidden, block], so that the weights of one element of the state for `block` units lie
// side by side (block divides hidden), of X's type, or i8 with scales as input 8, [1] or [gates *
// hidden]. q.gru with `linear_before_reset` reads from B (input 3) only the part of R's hidden
// gate; the others have no B.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/ops/nest.h"

namespace quench::ops {

// ONNX's operator (`base`), or ours that the pass recurrent_products makes of it.
OpDef ProjectedOp(OpDef base, const std::string& name);

// Checks inputs 0 to 5 and sets Y (0) and Y_h (1), and the cell state (2) when the node has it.
absl::Status InferRecurrent(InferContext& ctx, int gates, int activations);
Dim RecurrentMacs(const OpContext& ctx);
// Attributes all three have.
std::vector<AttributeSpec> RecurrentAttributes();

using Activation = std::function<E(E)>;

// The nests of one node. Every scratch buffer lives for the whole function.
class Recurrent {
 public:
  Recurrent(LowerContext& ctx, int gates);

  int directions() const { return directions_; }
  E batch() const { return batch_; }
  E hidden() const { return hidden_; }
  DataType type() const { return type_; }
  // Activation `index` of a direction, its argument clipped if the node asks for it.
  Activation ActivationOf(int direction, int index, int per_direction);

  // Starts a direction: fills `state` from an input [directions, batch, hidden], or with zeros.
  void LoadState(int direction, int input, B state);
  // Writes `state` to an output [directions, batch, hidden]; nothing when the output is unused.
  void StoreState(int direction, int output, B state);
  B MakeState(const std::string& name) { return MakeScratch(name, {batch_, hidden_}); }
  B MakeScratch(const std::string& name, const std::vector<E>& dims) {
    return ctx_.b().Scratch(name, type_, dims, loops::ScratchScope::kFunction);
  }

  // projection(t, n, g) = W[g] . X[t, n] + Wb[g], plus Rb[g] for gates below `recurrent_bias`.
  void ProjectInputs(int direction, int recurrent_bias_gates);
  // A row of R.
  struct Gate {
    E row;
    E block, lane;  // of q. operators
  };
  // All samples and rows first * hidden to before last * hidden, in parallel.
  void ForEachGate(int first, int last, const std::function<void(E n, const Gate& gate)>& body);
  // state[n] . R[gate], R in its scales; `scale` multiplies element k of the state when given.
  E Recur(int direction, B state, E n, const Gate& gate, const std::function<E(E)>& scale = {});
  E RecurrentBias(int direction, E g);
  E Weight(int input, std::span<const E> at) { return ctx_.in(input).At(at); }

  // Runs `gates(n-th sample loops)` and then `update` for every step in order. `phases` are nests
  // that may look at all samples; `update(n, h, projected)` gives the new hidden value of one unit,
  // where projected(gate) is the projection of this step.
  struct Step {
    E step;
    std::function<E(E, E)> projected;  // (n, g): projection at this step's time of sample n
  };
  void ForEachStep(int direction, const std::function<void(const Step&)>& phases,
                   const std::function<E(const Step&, E, E)>& update, B state);

 private:
  E Projection(int direction, E t, E n, E g) const;
  E Time(int direction, E step, E n);
  E Length(E n);
  bool Reverse(int direction) const;
  std::vector<E> StateAt(int direction, E n, E h) const;

  LowerContext& ctx_;
  int gates_;
  int directions_ = 1;
  bool batch_first_ = false;
  bool projected_ = false;
  DataType type_;
  E time_, batch_, hidden_;
  B projection_;
};

}  // namespace quench::ops
