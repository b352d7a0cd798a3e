"""`quench analyse` on the networks of bench/models/networks.py, beside what has been published of them."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

NETWORKS = pathlib.Path(__file__).resolve().parents[2] / "bench/models/networks.py"
# Parameters, and G MAC of convolutions and products at 224 x 224 (torchvision's and the papers').
PUBLISHED = {
    "alexnet": (61_100_840, 0.714), "googlenet": (6_624_904, 1.498), "mobilenet_v2": (3_504_872, 0.301),
    "resnet18": (11_689_512, 1.814), "resnet50": (25_557_032, 4.089), "vgg16": (138_357_544, 15.47),
    "squeezenet1_0": (1_248_424, 0.819), "densenet121": (7_978_856, 2.834), "efficientnet_b0": (5_288_548, 0.386),
    "vit_b16": (86_567_656, 17.564), "bert_base": (109_482_240, None), "resnet20": (269_722, None), "resnet56": (853_018, None),
}


def googlenet_12(report):
    work = {each["op"]: each for each in report["by_operator"]}
    return {"weights": (report["weight_bytes"], 27_994_208), "Conv": (work["Conv"]["macs_with_bias"], 1_584_874_032),
            "Gemm": (work["Gemm"]["macs_with_bias"], 1_025_000),
            "activations": (report["activation_bytes"]["total"], 39_653_056),
            "activations, nested": (report["activation_bytes"]["nested"], 50_087_872),
            "AveragePool": (work["AveragePool"]["operations"], 50_176),
            "MaxPool": (work["MaxPool"]["operations_with_padding"], 3_054_016), "Relu": (work["Relu"]["operations"], 3_226_160)}


def mobilenetv2_10(report):
    """The published listing has no size for these two."""
    unknown = sum(layer["first_output_bytes"] for layer in report["layers"] if layer["node"] in ("Gather_100", "Reshape_103"))
    sums = report["bandwidth"]
    return {"unknown": (unknown, 8 + 5_120), "peak": (sums["peak"], 9_633_792), "inputs": (sums["inputs"] - unknown, 52_859_304),
            "outputs": (sums["outputs"] - unknown, 52_010_328),
            "with the model's input": (sums["outputs_and_input"] - unknown, 52_612_440)}


def figures(name, report):
    if name in ("googlenet-12", "mobilenetv2-10"):
        return {"googlenet-12": googlenet_12, "mobilenetv2-10": mobilenetv2_10}[name](report)
    parameters, macs = PUBLISHED[name]
    pairs = {"parameters": (report["parameters"], parameters)}
    if macs is not None:
        digits = len(str(macs).split(".")[1])
        pairs["G MAC"] = (round(report["macs"]["total"] / 1e9, digits), macs)
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quench", required=True)
    parser.add_argument("names", nargs="*", help="networks; without: all")
    args = parser.parse_args()
    try:
        import onnx  # noqa: F401  the networks are written with it
    except ImportError:
        print("skipped: no onnx to write networks with")
        return 77
    wrong = 0
    for name in args.names or [*PUBLISHED, "googlenet-12", "mobilenetv2-10"]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, NETWORKS, folder, name], check=True, stdout=subprocess.DEVNULL)
            done = subprocess.run([args.quench, "analyse", f"{folder}/{name}.onnx", "--format", "json"], check=True, capture_output=True,
                                  env={**os.environ, "XDG_CACHE_HOME": folder})
        for what, (found, published) in figures(name, json.loads(done.stdout)).items():
            wrong += found != published
            print(f"{name:16} {what:24} {found:>15,} {'' if found == published else f'published: {published:,}'}")
    print(f"{wrong} figures differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
