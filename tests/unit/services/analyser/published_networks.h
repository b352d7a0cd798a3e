// Networks whose figures have been published, rebuilt from their descriptions at batch 1, node by
// node and with the names that their files have. Weights are random.
#pragma once

#include "common/ir/graph.h"

namespace quench::testing {

// Szegedy et al. 2014 as torchvision has it: convolutions without bias, batch norms, the 3x3
// instead of the 5x5 branch.
Graph TorchvisionGoogLeNet();
// The ONNX model zoo's googlenet-12: the paper's, with local response norms; pools of stride 2 are
// padded at their ends only.
Graph ZooGoogLeNet();
// The ONNX model zoo's mobilenetv2-10: batch norms folded, the reshape's size read from the tensor.
Graph ZooMobileNetV2();

}  // namespace quench::testing
