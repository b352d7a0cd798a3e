// Any script gives a legal graph or an error.
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "common/ir/text.h"
#include "common/ir/verify.h"
#include "common/ops/op.h"
#include "services/analyser/edit.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

quench::Graph Network() {
  quench::Graph graph = quench::ParseGraph(R"(quench.ir 1
module "net" canonical {
  symbol n = input(0, 0) in 1..64
  input %x: f32[n, 4]
  input %c: bool[]
  const %w: f32[4, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
  %h = MatMul(%x, %w) as "product" from "/fc/MatMul"
  %i = If(%c, %h) {
    else_branch = graph "no" { input %a: f32[n, 2] %p = Relu(%a) output %p },
    then_branch = graph "yes" { input %b: f32[n, 2] %q = Exp(%b) %s = Neg(%q) output %s }
  } as "if"
  %values, %indices = Split(%i) {axis = 1, num_outputs = 2} as "split"
  %y = Softmax(%values) {axis = 1} as "softmax"
  output %y, %indices
})")
                            .value();
  if (!quench::ops::InferGraph(graph).ok()) std::abort();
  return graph;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quench::Graph* const network = new quench::Graph(Network());
  const auto script =
      quench::analyser::ParseEditScript({reinterpret_cast<const char*>(data), size});
  if (!script.ok()) return 0;
  const auto edited = quench::analyser::EditGraph(
      *network, *script,
      [](const std::string&, const std::string& array) -> absl::StatusOr<quench::Tensor> {
        if (array.empty()) return quench::Tensor::Zeros(quench::DataType::kF32, {4, 3});
        return absl::NotFoundError("no array");
      });
  if (!edited.ok() || quench::VerifyGraph(edited->graph).ok()) return 0;
  std::cerr << quench::PrintGraph(edited->graph) << quench::VerifyGraph(edited->graph) << "\n";
  std::abort();
}
