"""The same networks as torch.export archive, TorchScript and ONNX: outputs, kernels and speed of what quench compiles.

Usage: python3 torch_three_ways.py --quench build/release/bin/quench [--only NAME] [--layers N] [--speed] [--rounds N] [--seconds S] [--work DIR]
(needs torch, torchvision, transformers and onnxscript)

Weights are random. Outputs may differ from PyTorch's by 1e-5 of the largest, kernels and transforms among them (`quench bench --profile`) not
at all: but for the transformers, whose attention the three exporters write in other operators, only transforms. --speed runs the three in
turns; medians may differ by 3 %. --layers: of the transformers; 12 gives archives of 400 MB and more.
"""

import argparse
import pathlib
import sys
import warnings

from quench_command import command, kernels, run, speeds

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE, SLOWER = 1e-5, 1.03
TRANSFORMERS = ("bert", "gpt2")
NETWORKS = ("resnet50", "mobilenet_v3_large", *TRANSFORMERS)
FORMATS = (".pt2", ".pt", ".onnx")

try:
    import numpy
    import onnxscript as _
    import torch
    import torchvision
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)


class First(torch.nn.Module):
    """The first output alone."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, tokens):
        return self.inner(tokens, use_cache=False, return_dict=False)[0]


def network(name, layers):
    """A module in inference mode, and example inputs."""
    torch.manual_seed(5)
    if name in TRANSFORMERS:
        tokens = torch.randint(0, 1000, (1, 128))
        if name == "bert":
            inner = transformers.BertModel(transformers.BertConfig(num_hidden_layers=layers), add_pooling_layer=False)
        else:
            inner = transformers.GPT2Model(transformers.GPT2Config(n_layer=layers))
        return First(inner).eval(), (tokens,)
    module = getattr(torchvision.models, name)(weights=None)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.uniform_(-0.1, 0.1)
            part.running_var.uniform_(0.8, 1.2)
    return module.eval(), (torch.randn(1, 3, 224, 224),)


def write(module, inputs, path):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(module, inputs), str(path))
        elif path.suffix == ".pt":
            torch.jit.trace(module, inputs, check_trace=False).save(str(path))
        else:
            torch.onnx.export(module, inputs, str(path), opset_version=18, external_data=False, verbose=False)


def compiled(quench, model, inputs):
    """The library and its kernels."""
    words = []
    if model.suffix == ".pt":  # says nothing of shapes and types
        name = "tokens" if inputs[0].dtype == torch.int64 else "x"
        words = ["--shape", f"{name}={','.join(map(str, inputs[0].shape))}:{'i64' if name == 'tokens' else 'f32'}"]
    folder = model.with_name(model.name + ".out")
    command(quench, "compile", model, "--output", folder, "--force", "--export-metadata", *words)
    library = folder / "model.so"
    return library, kernels(quench, library, folder / "metadata.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--only", choices=NETWORKS)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "torch-three-ways")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    failures = []
    for name in [args.only] if args.only else NETWORKS:
        module, inputs = network(name, args.layers)
        with torch.no_grad():
            wanted = module(*inputs).numpy()
        libraries, counts = {}, {}
        for suffix in FORMATS:
            model = args.work / (name + suffix)
            write(module, inputs, model)
            libraries[suffix], steps = compiled(args.quench, model, inputs)
            counts[suffix] = {"kernels": len(steps), "transforms": steps.count("transform")}
            result = run(args.quench, libraries[suffix], [inputs[0].numpy()], libraries[suffix].parent)[0]
            off = numpy.abs(result - wanted).max() / numpy.abs(wanted).max()
            print(f"{name}{suffix}: {model.stat().st_size >> 20} MiB, differs from PyTorch by {off:.1e}, {counts[suffix]}", flush=True)
            if not off <= TOLERANCE:
                failures.append(f"{name}{suffix}: differs by {off}")
        compared = ["transforms"] if name in TRANSFORMERS else ["kernels", "transforms"]
        if len({tuple(each[kind] for kind in compared) for each in counts.values()}) != 1:
            failures.append(f"{name}: {counts}")
        if args.speed:
            times = speeds(args.quench, libraries, args.rounds, args.seconds)
            print(f"{name}: {times} ms", flush=True)
            if max(times.values()) > min(times.values()) * SLOWER:
                failures.append(f"{name}: speeds differ: {times}")
    for line in failures:
        print("FAIL", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
