#!/usr/bin/env python3
"""Trains the small CNN behind `scripts/quickstart` and writes bench/models/digits.onnx.

Data: scikit-learn's digits (1,797 images, 8x8, 10 classes), 80 % for training, 20 % held out, fixed seed.
Network: Conv 3x3 (16) + BatchNorm + ReLU, Conv 3x3 (32) + BatchNorm + ReLU, MaxPool 2x2, Conv 3x3 (32) + ReLU,
global average pool, fully connected (10). Plain NumPy with Adam: nothing to install but numpy, scikit-learn, onnx.

Beside the model it writes bench/models/digits.json: accuracy, parameters, and how the numbers came about; and
bench/models/digits_sample.npy: eight held-out images as an input for `quench run`.
"""

import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 7
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 2e-3
EPSILON = 1e-5
MOMENTUM = 0.9


def patches(x):
    """3x3 neighbourhoods with zero padding: [N, C, H, W] -> [N, H, W, C * 9]."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def unpatch(g, shape):
    """Adjoint of patches."""
    n, c, h, w = shape
    out = np.zeros((n, c, h + 2, w + 2), g.dtype)
    g = g.reshape(n, h, w, c, 3, 3)
    for i in range(3):
        for j in range(3):
            out[:, :, i : i + h, j : j + w] += g[:, :, :, :, i, j].transpose(0, 3, 1, 2)
    return out[:, :, 1:-1, 1:-1]


class Conv:
    def __init__(self, rng, c_in, c_out):
        self.w = (rng.standard_normal((c_out, c_in * 9)) * np.sqrt(2.0 / (c_in * 9))).astype(np.float32)
        self.b = np.zeros(c_out, np.float32)

    def forward(self, x, training):
        self.shape, self.p = x.shape, patches(x)
        return (self.p @ self.w.T + self.b).transpose(0, 3, 1, 2)

    def backward(self, g):
        g = g.transpose(0, 2, 3, 1)
        self.gw = np.einsum("nhwo,nhwk->ok", g, self.p, optimize=True)
        self.gb = g.sum((0, 1, 2))
        return unpatch(g @ self.w, self.shape)

    def parameters(self):
        return [("w", "gw"), ("b", "gb")]


class BatchNorm:
    def __init__(self, channels):
        self.gamma, self.beta = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self.mean, self.var = np.zeros(channels, np.float32), np.ones(channels, np.float32)

    def forward(self, x, training):
        if training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean = MOMENTUM * self.mean + (1 - MOMENTUM) * mean
            self.var = MOMENTUM * self.var + (1 - MOMENTUM) * var
        else:
            mean, var = self.mean, self.var
        self.scale = (1 / np.sqrt(var + EPSILON)).astype(np.float32)
        self.hat = (x - mean[:, None, None]) * self.scale[:, None, None]
        return self.hat * self.gamma[:, None, None] + self.beta[:, None, None]

    def backward(self, g):
        self.ggamma, self.gbeta = (g * self.hat).sum((0, 2, 3)), g.sum((0, 2, 3))
        g = g * self.gamma[:, None, None]
        mean_g, mean_gh = g.mean((0, 2, 3)), (g * self.hat).mean((0, 2, 3))
        return (g - mean_g[:, None, None] - self.hat * mean_gh[:, None, None]) * self.scale[:, None, None]

    def parameters(self):
        return [("gamma", "ggamma"), ("beta", "gbeta")]


class Relu:
    def forward(self, x, training):
        self.mask = x > 0
        return x * self.mask

    def backward(self, g):
        return g * self.mask

    def parameters(self):
        return []


class MaxPool2:
    def forward(self, x, training):
        n, c, h, w = x.shape
        self.blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        self.y = self.blocks.max((3, 5))
        return self.y

    def backward(self, g):
        mask = self.blocks == self.y[:, :, :, None, :, None]
        mask = mask / mask.sum((3, 5), keepdims=True)
        n, c, h, _, w, _ = self.blocks.shape
        return (mask * g[:, :, :, None, :, None]).reshape(n, c, 2 * h, 2 * w).astype(np.float32)

    def parameters(self):
        return []


class PoolAndClassify:
    """Global average pool, then a fully connected layer."""

    def __init__(self, rng, c_in, classes):
        self.w = (rng.standard_normal((classes, c_in)) * np.sqrt(1.0 / c_in)).astype(np.float32)
        self.b = np.zeros(classes, np.float32)

    def forward(self, x, training):
        self.shape, self.pooled = x.shape, x.mean((2, 3))
        return self.pooled @ self.w.T + self.b

    def backward(self, g):
        self.gw, self.gb = g.T @ self.pooled, g.sum(0)
        n, c, h, w = self.shape
        return np.broadcast_to((g @ self.w)[:, :, None, None] / (h * w), self.shape).astype(np.float32)

    def parameters(self):
        return [("w", "gw"), ("b", "gb")]


def forward(layers, x, training):
    for layer in layers:
        x = layer.forward(x, training)
    return x


def train(layers, x, y, rng):
    moments = {}
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(x))
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for start in range(0, len(x), BATCH):
            batch = order[start : start + BATCH]
            logits = forward(layers, x[batch], True)
            p = np.exp(logits - logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(batch)), y[batch]] -= 1
            g = (p / len(batch)).astype(np.float32)
            for layer in reversed(layers):
                g = layer.backward(g)
            step += 1
            for index, layer in enumerate(layers):
                for name, grad in layer.parameters():
                    adam(layer, name, getattr(layer, grad), moments.setdefault((index, name), [0.0, 0.0]), rate, step)


def adam(layer, name, grad, moment, rate, step):
    moment[0] = 0.9 * moment[0] + 0.1 * grad
    moment[1] = 0.999 * moment[1] + 0.001 * grad * grad
    m, v = moment[0] / (1 - 0.9**step), moment[1] / (1 - 0.999**step)
    setattr(layer, name, (getattr(layer, name) - rate * m / (np.sqrt(v) + 1e-8)).astype(np.float32))


def to_onnx(layers):
    conv1, bn1, _, conv2, bn2, _, _, conv3, _, head = layers
    constants = []

    def constant(name, array):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype=np.float32), name))
        return name

    def conv(name, layer, x):
        w = constant(name + ".weight", layer.w.reshape(layer.w.shape[0], -1, 3, 3))
        return helper.make_node("Conv", [x, w, constant(name + ".bias", layer.b)], [name], name,
                                kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def norm(name, layer, x):
        parts = [constant(f"{name}.{p}", v) for p, v in
                 (("scale", layer.gamma), ("bias", layer.beta), ("mean", layer.mean), ("var", layer.var))]
        return helper.make_node("BatchNormalization", [x, *parts], [name], name, epsilon=EPSILON)

    nodes = [
        conv("conv1", conv1, "image"), norm("bn1", bn1, "conv1"), helper.make_node("Relu", ["bn1"], ["relu1"], "relu1"),
        conv("conv2", conv2, "relu1"), norm("bn2", bn2, "conv2"), helper.make_node("Relu", ["bn2"], ["relu2"], "relu2"),
        helper.make_node("MaxPool", ["relu2"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        conv("conv3", conv3, "pool"), helper.make_node("Relu", ["conv3"], ["relu3"], "relu3"),
        helper.make_node("GlobalAveragePool", ["relu3"], ["gap"], "gap"),
        helper.make_node("Flatten", ["gap"], ["features"], "flatten"),
        helper.make_node("Gemm", ["features", constant("fc.weight", head.w), constant("fc.bias", head.b)], ["logits"],
                         "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "digits", [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="quench-train-digits")
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main():
    data = load_digits()
    x = (data.images / 16.0).astype(np.float32)[:, None]
    x_train, x_test, y_train, y_test = train_test_split(x, data.target, test_size=0.2, random_state=SEED,
                                                        stratify=data.target)
    rng = np.random.default_rng(SEED)
    layers = [Conv(rng, 1, 16), BatchNorm(16), Relu(), Conv(rng, 16, 32), BatchNorm(32), Relu(), MaxPool2(),
              Conv(rng, 32, 32), Relu(), PoolAndClassify(rng, 32, 10)]
    train(layers, x_train, y_train, rng)
    accuracy = float((forward(layers, x_test, False).argmax(1) == y_test).mean())

    folder = pathlib.Path(__file__).resolve().parent.parent / "bench" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    model = to_onnx(layers)
    onnx.save(model, folder / "digits.onnx")
    np.save(folder / "digits_sample.npy", x_test[:8])
    report = {
        "accuracy": round(accuracy, 4),
        "test_images": len(x_test),
        "parameters": sum(getattr(layer, name).size for layer in layers for name, _ in layer.parameters()),
        "sample_labels": y_test[:8].tolist(),
        "how": "scripts/train_digits.py: scikit-learn digits, 80/20 stratified split, seed 7",
    }
    (folder / "digits.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
