"""`quench analyse` beside torchinfo, ptflops, fvcore and onnx-tool: what its report says of their rules explains their totals, to the unit."""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import fvcore.nn
import onnx_tool
import ptflops
import torch
import torchinfo
from torch import nn

RECTIFIERS = {"Relu", "LeakyRelu", "Clip"}
# onnx-tool's instructions for each element of the output.
INSTRUCTIONS = {"BatchNormalization": 31, "Softmax": 36, "Relu": 1, "Clip": 2, "LeakyRelu": 2, "Add": 1}


class Attention(nn.Module):
    """Products with and without weights, over a sequence."""

    def __init__(self):
        super().__init__()
        self.queries, self.keys = nn.Linear(12, 12), nn.Linear(12, 12, bias=False)

    def forward(self, x):
        scores = torch.matmul(self.queries(x), self.keys(x).transpose(1, 2))
        return torch.matmul(torch.softmax(scores, -1), x)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, groups=4, bias=False), nn.ReLU6(), nn.AvgPool2d(2),
                         nn.ConvTranspose2d(32, 8, 3, stride=2, padding=1), nn.LeakyReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 10))


def dims(layer):
    return [int(size) for size in layer["outputs"][0].split("[")[1].rstrip("]").split(",")]


def by_torchinfo(layers):
    total = 0
    for layer in layers:
        batch, *rest = dims(layer)
        if layer["op"] == "Conv":
            total += layer["macs_with_bias"]
        elif layer["op"] == "ConvTranspose":
            total += layer["parameters"] * batch * math.prod(rest[1:])
        else:
            total += layer["parameters"] * batch
    return total


def by_ptflops(layers):
    total = 0
    for layer in layers:
        total += layer["macs_with_bias"]
        if layer["kind"] in ("normalisation", "pooling") or layer["op"] in RECTIFIERS:
            total += layer["operations"]
        if layer["kind"] == "pooling" or layer["op"] == "Relu":
            total += layer["operations"]
        if layer["op"] == "Add" and layer["parameters"]:  # the bias of a Linear, which ONNX has as a node
            total += layer["operations"]
    return total


def by_fvcore(layers):
    return sum(layer["macs"] + (layer["operations"] if layer["op"] in ("BatchNormalization", "GlobalAveragePool") else 0)
               for layer in layers)


def by_onnx_tool(layers):
    total = 0
    for layer in layers:
        elements = math.prod(dims(layer))
        if layer["op"] == "ConvTranspose":  # strides of 2
            total += elements * layer["parameters_of_window"] // 4 + elements
        elif layer["kind"] in ("convolution", "product"):
            total += layer["macs_with_bias"]
        elif layer["op"] == "GlobalAveragePool":
            total += layer["operations"] + 4 * elements
        elif layer["kind"] == "pooling":  # windows of 2 x 2
            total += 4 * elements
        elif layer["op"] in INSTRUCTIONS:
            total += INSTRUCTIONS[layer["op"]] * elements
    return total


def counts(name, model, shape, quench, folder):
    """Pairs of what a tool counts and what the rules make of our counts."""
    model.eval()
    x = torch.randn(shape)
    path = folder / f"{name}.onnx"
    # As the module is: BatchNorm is not folded into what is before it.
    torch.onnx.export(model, x, str(path), opset_version=16, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
    output = subprocess.run([quench, "analyse", str(path), "--format", "json", "--progress", "none"],
                            check=True, capture_output=True, text=True).stdout
    layers = json.loads(output)["layers"]
    for layer in layers:
        if layer["op"] == "ConvTranspose":  # inputs x window, without the bias
            outputs = dims(layer)[1]
            layer["parameters_of_window"] = (layer["parameters"] - outputs) // outputs
    flops = fvcore.nn.FlopCountAnalysis(model, x)
    flops.unsupported_ops_warnings(False)
    macs, _ = ptflops.get_model_complexity_info(model, shape[1:], as_strings=False, print_per_layer_stat=False,
                                                input_constructor=lambda _: {"input" if name == "convolutions" else "x": x})
    tool = onnx_tool.Model(str(path))
    tool.graph.shape_infer()
    tool.graph.profile()
    return {"torchinfo": (torchinfo.summary(model, input_data=x, verbose=0).total_mult_adds, by_torchinfo(layers)),
            "ptflops": (macs, by_ptflops(layers)),
            "fvcore": (flops.total(), by_fvcore(layers)),
            "onnx-tool": (int(sum(tool.graph.macs)) if isinstance(tool.graph.macs, list) else int(tool.graph.macs[0]), by_onnx_tool(layers))}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quench", required=True)
    args = parser.parse_args()
    networks = {"convolutions": (convolutions(), (2, 3, 20, 20)), "attention": (Attention(), (2, 7, 12))}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, shape) in networks.items():
            for tool, (theirs, ours) in counts(name, model, shape, os.path.abspath(args.quench), pathlib.Path(folder)).items():
                print(f"{name:<14}{tool:<12}{theirs:>12,}{ours:>12,}  {'' if theirs == ours else 'DIFFERS'}")
                failed |= theirs != ours
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
