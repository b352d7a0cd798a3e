"""Models from `quench quantize -o m.onnx` are computed in integers by the runtimes they are for: by their own dumps, not by time.

ONNX Runtime's optimised model has no product of floats left, OpenVINO's runtime model (where openvino is installed) executes every one
on bytes. For TensorRT, which is not at hand, the file itself has what its documentation wants.

Usage: quantized_peers.py --quench PROGRAM [MODEL...]      models of one's own instead of the tiny networks of bench/models
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

try:
    import openvino
except ImportError:
    openvino = None

NETWORKS = ["resnet50", "mobilenet_v2"]  # residual sums, and depthwise convolutions with Clip behind them
INTEGERS = {"QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "ConvIntegerToFloat", "MatMulInteger", "MatMulIntegerToFloat",
            "DynamicQuantizeMatMul"}
FLOATS = {"Conv", "FusedConv", "NhwcFusedConv", "Gemm", "MatMul", "FusedGemm", "FusedMatMul"}


def quench(program, *words):
    done = subprocess.run([program, *map(str, words), "--progress", "none"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"quench {' '.join(map(str, words))}: {done.stderr}")


def products(model):
    return sum(node.op_type in FLOATS for node in model.graph.node)


def check_onnxruntime(path, before, folder):
    """Every product of the float model became one of integers in the model that ONNX Runtime executes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node]
    floats = sorted({kind for kind in kinds if kind in FLOATS})
    integers = sum(kind in INTEGERS for kind in kinds)
    assert not floats and integers == before, f"ONNX Runtime has {floats} in float, and {integers} of {before} products in integers"
    return session, integers


def check_openvino(path, before):
    """Every product in OpenVINO's runtime model reads bytes."""
    compiled = openvino.Core().compile_model(str(path), "CPU")
    layers = [dict(op.get_rt_info()) for op in compiled.get_runtime_model().get_ops()]
    layers = [layer for layer in layers if str(layer["layerType"].astype(str)) in ("Convolution", "FullyConnected", "MatMul")]
    floats = [layer["originalLayersNames"].astype(str) for layer in layers
              if layer["runtimePrecision"].astype(str) not in ("i8", "u8")]
    assert not floats and len(layers) == before, f"OpenVINO has {floats} in float, and {len(layers)} of {before} products"
    return len(layers)


def check_tensorrt(path):
    """Activations and weights are i8 with zero points of 0, weights have a scale per channel, biases are floats."""
    model = onnx.load(path)
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    pairs = [node for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    weights = [node for node in pairs if node.input[0] in constants]
    for node in pairs:
        zero = constants[node.input[2]]
        assert zero.dtype == np.int8 and not zero.any(), f"{node.name}: zero point {zero}"
    for node in weights:
        integers, scale = constants[node.input[0]], constants[node.input[1]]
        axis = next(each.i for each in node.attribute if each.name == "axis")
        assert integers.dtype == np.int8 and scale.shape == (integers.shape[axis],), f"{node.name}: scale {scale.shape}"
    assert len(weights) == products(model), f"{len(weights)} weights of {products(model)} products"


def check(program, path, data, folder):
    before = products(onnx.load(path))
    quench(program, "calibrate", path, "--batch", 1, *data, "--output", folder / "s.stats", "--force")

    def quantized(*how):
        output = folder / "q.onnx"
        quench(program, "quantize", path, "--batch", 1, "-c", folder / "s.stats", "-o", output, "--force", *how)
        return output

    session, integers = check_onnxruntime(quantized("--for", "onnxruntime"), before, folder)
    value = session.get_inputs()[0]
    x = np.random.default_rng(1).uniform(0, 1, value.shape).astype(np.float32)
    a = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {value.name: x})[0]
    b = session.run(None, {value.name: x})[0]
    print(f"{path.stem}: {integers} of {before} products in integers in ONNX Runtime, SQNR {10 * np.log10((a**2).sum() / ((a - b)**2).sum()):.1f} dB")
    check_onnxruntime(quantized("--for", "onnxruntime", "--per-channel"), before, folder)
    if openvino is not None:
        for how in ([], ["--for", "openvino"], ["--for", "openvino", "--per-channel"]):
            print(f"{path.stem}: {check_openvino(quantized(*how), before)} of {before} in OpenVINO {' '.join(how)}")
    check_tensorrt(quantized("--for", "tensorrt"))
    return quantized(), before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = args.models
        if not models:
            subprocess.run([sys.executable, ROOT / "bench/models/networks.py", "--tiny", folder, *NETWORKS], check=True)
            models = [folder / f"{network}.onnx" for network in NETWORKS]
            # The default is for every runtime: here, where nothing stands between products, for ONNX Runtime too.
            digits = ROOT / "bench/models/digits.onnx"
            output, before = check(args.quench, digits, ["--data", ROOT / "bench/models/digits_sample.npy"], folder)
            check_onnxruntime(output, before, folder)
        for model in models:
            check(args.quench, model, ["--random", 8], folder)
        models += [] if args.models else [digits]
    if openvino is None:
        print(f"skipped: {len(models)} models in OpenVINO: no module openvino")
    return 0


if __name__ == "__main__":
    sys.exit(main())
