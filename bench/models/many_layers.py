#!/usr/bin/env python3
"""Writes a model of many layers and large weights, for the cost of looking at it: scopes within scopes, branches, long skips.

Usage: bench/models/many_layers.py OUTPUT.onnx [--nodes 2000] [--megabytes 500]
"""

import argparse

import numpy as np
import onnx
from onnx import TensorProto, helper

PER_BLOCK = 10  # nodes


def block(stage, number, x, skip, width):
    """Nodes, their weights, and the value that they end in: two branches, a norm, an addition of `skip`."""
    scope = f"/encoder/stage{stage}/block{number}"
    name = lambda part: f"{scope}/{part}"
    nodes, weights = [], []

    def op(kind, part, inputs, **attributes):
        out = f"{scope}/{part}_output"
        nodes.append(helper.make_node(kind, inputs, [out], name(part), **attributes))
        return out

    def weight(part, *shape):
        random = np.random.default_rng(1000 * stage + number)
        values = (random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0])))
        tensor = helper.make_tensor(name(part), TensorProto.FLOAT, shape, values.tobytes(), raw=True)
        weights.append(tensor)
        return tensor.name

    a = op("Relu", "left/act", [op("MatMul", "left/fc", [x, weight("left/fc.weight", width, width)])])
    b = op("Sigmoid", "right/gate", [op("MatMul", "right/fc", [x, weight("right/fc.weight", width, width)])])
    y = op("Mul", "mix/mul", [a, b])
    y = op("LayerNormalization", "mix/norm", [y, weight("mix/norm.scale", width), weight("mix/norm.bias", width)], axis=-1)
    y = op("Add", "mix/add", [y, x])
    y = op("Tanh", "out/act", [y])
    y = op("Add", "out/skip", [y, skip])
    y = op("Identity", "out/result", [y])
    assert len(nodes) == PER_BLOCK
    return nodes, weights, y


def make(nodes, megabytes):
    blocks = nodes // PER_BLOCK
    width = int((megabytes * 1e6 / blocks / 2 / 4) ** 0.5)
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["tokens", width])
    all_nodes, all_weights, x, skips = [], [], "tokens_in", ["tokens_in"]
    for number in range(blocks):
        added, weights, x = block(number // 25, number, x, skips[max(0, len(skips) - 8)], width)
        all_nodes += added
        all_weights += weights
        skips.append(x)
    all_nodes[-1].output[0] = "tokens_out"
    graph = helper.make_graph(all_nodes, "many_layers", [info("tokens_in")], [info("tokens_out")], all_weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--megabytes", type=float, default=500)
    args = parser.parse_args()
    onnx.save(make(args.nodes, args.megabytes), args.output)


if __name__ == "__main__":
    main()
