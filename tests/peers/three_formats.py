"""The same networks as Keras, TensorFlow Lite and ONNX: outputs, transforms and speed of what quench compiles.

Usage: python3 -m three_formats --quench build/release/bin/quench [--speed] [--rounds N] [--seconds S] [--work DIR]
(from tests/peers; needs tensorflow and tf_keras, and for ONNX build/peer-venv's onnx)

Keras and TensorFlow Lite are compiled with --layout first, as the ONNX network has its images. Outputs may differ by 1e-5 of the largest,
transforms (kernels `transform` of `quench bench --profile`) not at all. --speed runs the three in turns; medians may differ by 5 %.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from quench_command import command, kernels, run, speeds

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOLERANCE, SLOWER = 1e-5, 1.05

MOBILE = [("conv", 32, 3, 2), ("norm",), ("relu6",)]
for filters, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1)):
    MOBILE += [("depthwise", 3, stride), ("norm",), ("relu6",), ("conv", filters, 1, 1), ("norm",), ("relu6",)]
RESIDUAL = [("conv", 64, 7, 2), ("norm",), ("relu",), ("pool",)]
for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
    branch = [("conv", filters, 3, stride), ("norm",), ("relu",), ("conv", filters, 3, 1), ("norm",)]
    RESIDUAL += [("branch", branch, [("conv", filters, 1, stride), ("norm",)] if stride != 1 else []), ("relu",)]
# Layers in order; "branch" adds what its two lists make of the same value.
NETWORKS = {"mobile": (MOBILE + [("mean",), ("dense", 100), ("softmax",)], 160),
            "residual": (RESIDUAL + [("mean",), ("dense", 100), ("softmax",)], 128)}


def numbers(layers, channels, random):
    """Weights of each layer in the order of the list, and the channels behind it."""
    weights = []
    for kind, *args in layers:
        if kind in ("conv", "depthwise"):
            size = args[1] if kind == "conv" else args[0]
            shape = (size, size, channels, args[0]) if kind == "conv" else (size, size, channels, 1)
            fan = size * size * (channels if kind == "conv" else 1)
            weights.append(random.normal(0, (2 / fan) ** 0.5, shape).astype("float32"))
            channels = args[0] if kind == "conv" else channels
        elif kind == "norm":
            draw = lambda low, high: random.uniform(low, high, channels).astype("float32")
            weights.append([draw(0.8, 1.2), draw(-0.1, 0.1), draw(-0.1, 0.1), draw(0.8, 1.2)])
        elif kind == "dense":
            weights.append(random.normal(0, channels**-0.5, (channels, args[0])).astype("float32"))
            channels = args[0]
        elif kind == "branch":
            first, after = numbers(args[0], channels, random)
            second, _ = numbers(args[1], channels, random)
            weights.append((first, second))
            channels = after
        else:
            weights.append(None)
    return weights, channels


# ---- Keras, and TensorFlow Lite from it ----


def keras_layers(K, layers, weights, x, set_later):
    L = K.layers
    for (kind, *args), values in zip(layers, weights):
        layer = None
        if kind == "conv":
            layer = L.Conv2D(args[0], args[1], strides=args[2], padding="same", use_bias=False)
        elif kind == "depthwise":
            layer = L.DepthwiseConv2D(args[0], strides=args[1], padding="same", use_bias=False)
        elif kind == "norm":
            layer = L.BatchNormalization(epsilon=1e-3)
        elif kind == "dense":
            layer = L.Dense(args[0], use_bias=False)
        if layer is not None:
            x = layer(x)
            set_later.append((layer, values if isinstance(values, list) else [values]))
        elif kind == "pool":
            x = L.MaxPooling2D(2)(x)
        elif kind == "mean":
            x = L.GlobalAveragePooling2D()(x)
        elif kind == "branch":
            x = L.Add()([keras_layers(K, args[0], values[0], x, set_later), keras_layers(K, args[1], values[1], x, set_later)])
        else:
            x = L.ReLU(max_value=6 if kind == "relu6" else None)(x) if kind != "softmax" else L.Softmax()(x)
    return x


def write_keras(name, layers, weights, size, work):
    import tensorflow
    import tf_keras

    given, later = tf_keras.Input((size, size, 3), batch_size=1, name="image"), []
    model = tf_keras.Model(given, keras_layers(tf_keras, layers, weights, given, later))
    for layer, values in later:
        layer.set_weights(values)
    model.save(work / f"{name}.h5")
    (work / f"{name}.tflite").write_bytes(tensorflow.lite.TFLiteConverter.from_keras_model(model).convert())


# ---- ONNX ----


def onnx_layers(layers, weights, x, nodes, tensors):
    import numpy
    from onnx import helper, numpy_helper

    def add(op, inputs, **attributes):
        output = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(values):
        name = f"w{len(tensors)}"
        tensors.append(numpy_helper.from_array(numpy.ascontiguousarray(values), name))
        return name

    for (kind, *args), values in zip(layers, weights):
        if kind == "conv":
            x = add("Conv", [x, constant(values.transpose(3, 2, 0, 1))], auto_pad="SAME_UPPER", strides=[args[2]] * 2)
        elif kind == "depthwise":
            x = add("Conv", [x, constant(values.transpose(2, 3, 0, 1))], auto_pad="SAME_UPPER", strides=[args[1]] * 2, group=values.shape[2])
        elif kind == "norm":
            x = add("BatchNormalization", [x, *map(constant, values)], epsilon=1e-3)
        elif kind == "dense":
            x = add("MatMul", [x, constant(values)])
        elif kind == "pool":
            x = add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
        elif kind == "mean":
            x = add("Flatten", [add("GlobalAveragePool", [x])])
        elif kind == "branch":
            x = add("Add", [onnx_layers(args[0], values[0], x, nodes, tensors), onnx_layers(args[1], values[1], x, nodes, tensors)])
        elif kind == "relu6":
            x = add("Clip", [x, constant(numpy.float32(0)), constant(numpy.float32(6))])
        else:
            x = add("Relu" if kind == "relu" else "Softmax", [x])
    return x


def write_onnx(name, layers, weights, size, work):
    import onnx
    from onnx import TensorProto, helper

    nodes, tensors = [], []
    last = onnx_layers(layers, weights, "image", nodes, tensors)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, size, size))
    graph = helper.make_graph(nodes, name, [image], [helper.make_tensor_value_info(last, TensorProto.FLOAT, (1, 100))], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), work / f"{name}.onnx")


def write(formats, work):
    import numpy

    for name, (layers, size) in NETWORKS.items():
        weights, _ = numbers(layers, 3, numpy.random.default_rng(11))
        (write_onnx if formats == "onnx" else write_keras)(name, layers, weights, size, work)


# ---- What quench makes of them ----


def compiled(quench, model, folder):
    """The library, and how many steps of it are transforms."""
    words = [] if model.suffix == ".onnx" else ["--layout", "first"]
    command(quench, "compile", model, "--output", folder, "--force", "--export-metadata", *words)
    return folder / "model.so", kernels(quench, folder / "model.so", folder / "metadata.json").count("transform")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--write", choices=["onnx"], help="(writes the ONNX files alone)")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "three-formats")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.write:
        write(args.write, args.work)
        return 0
    try:
        import numpy
        import tensorflow as _
        import tf_keras as _
    except ImportError as problem:
        print(f"skipped: no Keras to compare with: {problem}")
        return SKIPPED
    writer = [ROOT / "build" / "peer-venv" / "bin" / "python", __file__, "--quench", args.quench, "--write", "onnx", "--work", args.work]
    if subprocess.run(list(map(str, writer)), check=False).returncode != 0:
        print("skipped: no onnx to write with in build/peer-venv")
        return SKIPPED
    write("keras", args.work)
    failures = []
    for name, (_, size) in NETWORKS.items():
        image = numpy.random.default_rng(2).uniform(-1, 1, (1, 3, size, size)).astype("float32")
        results, transforms, libraries = {}, {}, {}
        for kind in ("onnx", "h5", "tflite"):
            folder = args.work / f"{name}_{kind}"
            libraries[kind], transforms[kind] = compiled(args.quench, args.work / f"{name}.{kind}", folder)
            results[kind] = run(args.quench, libraries[kind], [image], folder)[0]
        largest = float(numpy.abs(results["onnx"]).max())
        off = {kind: float(numpy.abs(values - results["onnx"]).max()) / largest for kind, values in results.items()}
        print(f"{name}: differ from ONNX by {off}, transforms {transforms}")
        if max(off.values()) > TOLERANCE:
            failures.append(f"{name}: outputs differ by {off}")
        if len(set(transforms.values())) != 1:
            failures.append(f"{name}: transforms {transforms}")
        if args.speed:
            times = speeds(args.quench, libraries, args.rounds, args.seconds)
            print(f"{name}: {times} ms")
            if max(times.values()) > min(times.values()) * SLOWER:
                failures.append(f"{name}: speeds differ: {times}")
    for line in failures:
        print("FAIL", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
