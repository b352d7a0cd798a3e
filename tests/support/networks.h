// Well-known networks at their true sizes, batch 1, for tests of what codegen chooses: graphs only.
// Weights are zeros that take no memory, and batch norms that the pipeline folds into convolutions
// are left out (the convolution has a bias). bench/models/networks.py writes the same networks as
// ONNX files, layer by layer.
#pragma once

#include "common/ir/graph.h"

namespace quench::testing {

Graph Resnet50();     // He et al. 2015, torchvision's stride in the 3x3
Graph Densenet121();  // Huang et al. 2016
Graph Googlenet();    // Szegedy et al. 2014 as torchvision has it, with batch norms
Graph Yolov5n();      // Ultralytics v5 at 640x640, boxes decoded in the graph
Graph BertBase();     // Devlin et al. 2018: 12 layers, 128 tokens

}  // namespace quench::testing
