#!/usr/bin/env python3
"""Writes well-known networks as ONNX graphs with random weights: for counts, speed and comparisons, not for accuracy.

Usage: bench/models/networks.py [--tiny] [--repeat-weights] OUTPUT_FOLDER [NAME...]      without names: all of them

Layer by layer as their papers and torchvision define them, BatchNorm kept, opset 17, batch symbolic. Weights are scaled so that
activations stay of order one (He et al. 2015), seeded by the layer's number: the same file every time. `--tiny` divides the channels
and the image, for tests: the same operators in the same order. `--repeat-weights` makes files that compress to a few hundred KB:
weights repeat a random block of 48 channels, biases do not.
"""

import math
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto

from detection import unet, unet_resize, yolov3_tiny, yolov5n
from mobile import inception_v3, mobilenet_v1, mobilenet_v1_nhwc, mobilenet_v3_large, mobilenet_v3_small, shufflenet_v2
from net import Net, image_net
from sequences import gpt2, gru_net, lstm_net, lstm_net_tf
from zoo import cifar_resnet, googlenet_12, mobilenetv2_10


def alexnet():
    n = image_net("alexnet")
    x = n.act(n.conv("image", 3, 64, 11, 4, 2, bias=True), "Relu")
    x = n.pool(x, 3, 2)
    x = n.pool(n.act(n.conv(x, 64, 192, 5, bias=True), "Relu"), 3, 2)
    for c_in, c_out in ((192, 384), (384, 256), (256, 256)):
        x = n.act(n.conv(x, c_in, c_out, 3, bias=True), "Relu")
    x = n.op("Flatten", n.pool(x, 3, 2))
    x = n.act(n.fc(x, 256 if Net.side else 9216, 4096), "Relu")
    x = n.act(n.fc(x, 4096, 4096), "Relu")
    return n.model(n.fc(x, 4096, 1000))


def vgg16():
    n, x, c = image_net("vgg16"), "image", 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x, c = n.act(n.conv(x, c, width, 3, bias=True), "Relu"), width
        x = n.pool(x, 2, 2)
    x = n.op("Flatten", x)
    x = n.act(n.fc(x, 2048 if Net.side else 25088, 4096), "Relu")
    x = n.act(n.fc(x, 4096, 4096), "Relu")
    return n.model(n.fc(x, 4096, 1000))


def googlenet():
    n = image_net("googlenet")

    def inception(x, c, a, b1, b2, c1, c2, d):
        branches = [n.conv_bn(x, c, a, 1), n.conv_bn(n.conv_bn(x, c, b1, 1), b1, b2, 3),
                    n.conv_bn(n.conv_bn(x, c, c1, 1), c1, c2, 3),
                    n.conv_bn(n.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4), c, d, 1)]
        return n.op("Concat", *branches, axis=1), a + b2 + c2 + d

    x = n.pool(n.conv_bn("image", 3, 64, 7, 2), 3, 2, ceil=1)
    x = n.pool(n.conv_bn(n.conv_bn(x, 64, 64, 1), 64, 192, 3), 3, 2, ceil=1)
    c = 192
    stages = [[(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
              [(192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
               (256, 160, 320, 32, 128, 128)],
              [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)]]
    for i, stage in enumerate(stages):
        for widths in stage:
            x, c = inception(x, c, *widths)
        if i < 2:
            x = n.pool(x, 3 if i == 0 else 2, 2, ceil=1)
    return n.model(n.head(x, c))


def resnet(name, blocks, bottleneck):
    n = image_net(name)
    x, c = n.pool(n.conv_bn("image", 3, 64, 7, 2), 3, 2, 1), 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        out = width * (4 if bottleneck else 1)
        for i in range(count):
            s = 2 if i == 0 and stage > 0 else 1
            shortcut = x if s == 1 and c == out else n.conv_bn(x, c, out, 1, s, act=None)
            if bottleneck:
                y = n.conv_bn(n.conv_bn(x, c, width, 1), width, width, 3, s)
                y = n.conv_bn(y, width, out, 1, act=None)
            else:
                y = n.conv_bn(n.conv_bn(x, c, width, 3, s), width, out, 3, act=None)
            x, c = n.act(n.op("Add", y, shortcut), "Relu"), out
    return n.model(n.head(x, c))


def mobilenet_v2():
    n = image_net("mobilenet_v2")
    x, c = n.conv_bn("image", 3, 32, 3, 2, act="Relu6"), 32
    for t, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            s, mid = (stride if i == 0 else 1), c * t
            y = x if t == 1 else n.conv_bn(x, c, mid, 1, act="Relu6")
            y = n.conv_bn(y, mid, mid, 3, s, mid, act="Relu6")
            y = n.conv_bn(y, mid, out, 1, act=None)
            x, c = (n.op("Add", x, y) if s == 1 and c == out else y), out
    x = n.conv_bn(x, c, 1280, 1, act="Relu6")
    return n.model(n.head(x, 1280))


def squeezenet():
    n = image_net("squeezenet1_0")

    def fire(x, c, s, e):
        x = n.act(n.conv(x, c, s, 1, bias=True), "Relu")
        parts = [n.act(n.conv(x, s, e, k, bias=True), "Relu") for k in (1, 3)]
        return n.op("Concat", *parts, axis=1), 2 * e

    x, c = n.pool(n.act(n.conv("image", 3, 96, 7, 2, 0, bias=True), "Relu"), 3, 2, ceil=1), 96
    for i, (s, e) in enumerate(((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))):
        x, c = fire(x, c, s, e)
        if i in (2, 6):
            x = n.pool(x, 3, 2, ceil=1)
    x = n.act(n.conv(x, c, 1000, 1, bias=True), "Relu")
    return n.model(n.op("Flatten", n.op("GlobalAveragePool", x)))


def densenet121():
    n = image_net("densenet121")
    x, c = n.pool(n.conv_bn("image", 3, 64, 7, 2), 3, 2, 1), 64
    for i, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            y = n.conv(n.act(n.bn(x, c), "Relu"), c, 128, 1)
            y = n.conv(n.act(n.bn(y, 128), "Relu"), 128, 32, 3)
            x, c = n.op("Concat", x, y, axis=1), c + 32
        if i < 3:
            x = n.conv(n.act(n.bn(x, c), "Relu"), c, c // 2, 1)
            x, c = n.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]), c // 2
    return n.model(n.head(n.act(n.bn(x, c), "Relu"), c))


def efficientnet_b0():
    n = image_net("efficientnet_b0")
    x, c = n.conv_bn("image", 3, 32, 3, 2, act="Silu"), 32
    for t, k, out, count, stride in ((1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1),
                                     (6, 5, 192, 4, 2), (6, 3, 320, 1, 1)):
        for i in range(count):
            s, mid, squeeze = (stride if i == 0 else 1), c * t, max(1, c // 4)
            y = x if t == 1 else n.conv_bn(x, c, mid, 1, act="Silu")
            y = n.conv_bn(y, mid, mid, k, s, mid, act="Silu")
            g = n.act(n.conv(n.op("GlobalAveragePool", y), mid, squeeze, 1, bias=True), "Silu")
            y = n.op("Mul", y, n.op("Sigmoid", n.conv(g, squeeze, mid, 1, bias=True)))
            y = n.conv_bn(y, mid, out, 1, act=None)
            x, c = (n.op("Add", x, y) if s == 1 and c == out else y), out
    return n.model(n.head(n.conv_bn(x, c, 1280, 1, act="Silu"), 1280))


def transformer_block(n, x, width, heads, seq, hidden, pre_norm):
    def attention(y):
        parts = []
        for _ in range(3):
            p = n.op("Reshape", n.linear(y, width, width), n.constant(np.array([0, seq, heads, width // heads], np.int64)))
            parts.append(p)
        q = n.op("Transpose", parts[0], perm=[0, 2, 1, 3])
        k = n.op("Transpose", parts[1], perm=[0, 2, 3, 1])
        v = n.op("Transpose", parts[2], perm=[0, 2, 1, 3])
        scores = n.op("Mul", n.op("MatMul", q, k), n.constant(np.float32(1 / math.sqrt(width // heads))))
        mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        mixed = n.op("Reshape", mixed, n.constant(np.array([0, seq, width], np.int64)))
        return n.linear(mixed, width, width)

    def gelu(y):
        e = n.op("Erf", n.op("Div", y, n.constant(np.float32(math.sqrt(2)))))
        return n.op("Mul", n.op("Mul", y, n.op("Add", e, n.constant(np.float32(1)))), n.constant(np.float32(0.5)))

    def mlp(y):
        return n.linear(gelu(n.linear(y, width, hidden)), hidden, width)

    if pre_norm:
        x = n.op("Add", x, attention(n.norm(x, width)))
        return n.op("Add", x, mlp(n.norm(x, width)))
    x = n.norm(n.op("Add", x, attention(x)), width)
    return n.norm(n.op("Add", x, mlp(x)), width)


def vit_b16():
    n, width, seq = image_net("vit_b16"), Net.channels(768), (Net.side or 224) ** 2 // 256
    x = n.conv("image", 3, 768, 16, 16, 0, bias=True)
    x = n.op("Transpose", n.op("Reshape", x, n.constant(np.array([0, width, seq], np.int64))), perm=[0, 2, 1])
    shape = n.op("Concat", n.op("Slice", n.op("Shape", x), n.constant(np.array([0], np.int64)), n.constant(np.array([1], np.int64))),
                 n.constant(np.array([1, width], np.int64)), axis=0)
    token = n.op("Expand", n.constant(np.random.default_rng(1).standard_normal((1, 1, width)).astype(np.float32)), shape)
    x = n.op("Concat", token, x, axis=1)
    x = n.op("Add", x, n.constant((np.random.default_rng(2).standard_normal((1, seq + 1, width)) * 0.02).astype(np.float32)))
    for _ in range(2 if Net.side else 12):
        x = transformer_block(n, x, width, 12, seq + 1, 4 * width, True)
    x = n.op("Gather", n.norm(x, width), n.constant(np.array(0, np.int64)), axis=1)
    return n.model(n.fc(x, 768, 1000))


def bert_base(seq=128):
    seq, vocabulary = (16, 100) if Net.side else (seq, 30522)
    n, width = Net("bert_base", [("ids", TensorProto.INT64, ["batch", seq]), ("types", TensorProto.INT64, ["batch", seq])]), Net.channels(768)
    words = n.op("Gather", n.weight((vocabulary, width), 2 * width), "ids")
    types = n.op("Gather", n.weight((2, width), 2 * width), "types")
    places = n.constant((np.random.default_rng(3).standard_normal((512, width)) * 0.02).astype(np.float32))
    places = n.op("Slice", places, n.constant(np.array([0], np.int64)), n.constant(np.array([seq], np.int64)), n.constant(np.array([0], np.int64)))
    x = n.norm(n.op("Add", n.op("Add", words, types), places), width)
    for _ in range(2 if Net.side else 12):
        x = transformer_block(n, x, width, 12, seq, 4 * width, False)
    pooled = n.op("Tanh", n.fc(n.op("Gather", x, n.constant(np.array(0, np.int64)), axis=1), 768, 768))
    return n.model(x, pooled)


NETWORKS = {
    "alexnet": alexnet, "vgg16": vgg16, "googlenet": googlenet, "squeezenet1_0": squeezenet, "densenet121": densenet121,
    "resnet18": lambda: resnet("resnet18", (2, 2, 2, 2), False), "resnet50": lambda: resnet("resnet50", (3, 4, 6, 3), True),
    "mobilenet_v2": mobilenet_v2, "efficientnet_b0": efficientnet_b0, "vit_b16": vit_b16, "bert_base": bert_base,
    "inception_v3": inception_v3, "shufflenet_v2_x1_0": shufflenet_v2, "mobilenet_v1": mobilenet_v1, "mobilenet_v1_nhwc": mobilenet_v1_nhwc,
    "mobilenet_v3_large": mobilenet_v3_large, "mobilenet_v3_small": mobilenet_v3_small, "unet": unet, "unet_resize": unet_resize,
    "yolov3_tiny": yolov3_tiny, "yolov5n": yolov5n, "gpt2_4": gpt2, "gpt2": lambda: gpt2(12), "lstm_net": lstm_net, "lstm_net_tf": lstm_net_tf, "gru_net": gru_net,
    "googlenet-12": googlenet_12, "mobilenetv2-10": mobilenetv2_10,
    "resnet20": lambda: cifar_resnet("resnet20", 3), "resnet56": lambda: cifar_resnet("resnet56", 9),
}


def make_tiny():
    """For tests: a sixteenth of the channels, images of 64 pixels, two transformer blocks."""
    Net.narrow, Net.side = 16, 64


def main():
    arguments = [a for a in sys.argv[1:] if a not in ("--tiny", "--repeat-weights")]
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    unknown = [n for n in arguments[1:] if n not in NETWORKS]
    if unknown:
        print(f"unknown networks {unknown}; known: {', '.join(NETWORKS)}", file=sys.stderr)
        return 2
    if "--tiny" in sys.argv:
        make_tiny()
    if "--repeat-weights" in sys.argv:
        Net.period = 48
    for name in arguments[1:] or NETWORKS:
        onnx.save(NETWORKS[name](), folder / f"{name}.onnx")
        print(folder / f"{name}.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
