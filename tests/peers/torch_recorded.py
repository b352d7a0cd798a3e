"""Writes the files of tests/cases/torch: small models with random weights, saved by whatever PyTorch runs this script, their inputs, and what
that PyTorch computes. A unit test reads them without PyTorch. Run it with an old and a new one: their files differ.

Usage: python3 tests/peers/torch_recorded.py [PATTERN]

Traces in a file of where it was made (paths in stack traces) are left out.
"""

import importlib.util
import json
import pathlib
import sys
import tempfile
import warnings
import zipfile

import torch
import torch.nn.functional as F
from torch import nn

CASES = pathlib.Path(__file__).resolve().parents[1] / "cases" / "torch"
VERSION = ".".join(torch.__version__.split("+")[0].split(".")[:2])
DTYPES = {torch.float32: "f32", torch.int64: "i64"}


class Net(nn.Module):
    """Parameters, buffers of batch normalization, a buffer and a tensor that is neither."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(16, 5)
        self.register_buffer("scale", torch.arange(5.0))
        self.shift = torch.ones(5) * 2

    def forward(self, x):
        y = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1)
        return self.out(y) * self.scale + self.shift


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x):
        self.n.add_(x)
        return self.n * 2


class Batch(nn.Module):
    """A batch of any size."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 5)

    def forward(self, x, y):
        return F.softmax(self.out(x), -1) + torch.cat([y, y], 1)[:, :5], x.shape[0] * x.sum()


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


class Loops(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


class Decides(nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            y = x * 2
        else:
            y = -x
        for i in range(int(x.abs().max()) + 1):
            y = y + i
        return y


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cells = nn.Embedding(7, 3), nn.LSTM(3, 4, batch_first=True)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, words):
        y, _ = self.cells(self.embed(words))
        return self.block(y)


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.relu, self.out = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Linear(16, 5)

    def forward(self, x):
        return self.dequant(self.out(self.relu(self.conv(self.quant(x))).flatten(1)))


def static_quantized():
    engines = torch.backends.quantized.supported_engines
    torch.backends.quantized.engine = "fbgemm" if "fbgemm" in engines else engines[-1]
    module = Quantized().eval()
    module.qconfig = torch.ao.quantization.get_default_qconfig(torch.backends.quantized.engine)
    module = torch.ao.quantization.prepare(module)
    module(torch.randn(4, 2, 4, 4))
    return torch.ao.quantization.convert(module)


def pt2e(inputs):
    """torchao's quantizer, or torch's own before."""
    if importlib.util.find_spec("torchao"):
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
        module = torch.export.export(Net().eval(), inputs).module()
    else:
        from torch.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torch.ao.quantization.quantizer import x86_inductor_quantizer as x86
        module = torch.export.export_for_training(Net().eval(), inputs).module()
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(module, quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def exported(module, inputs, path, dynamic):
    if dynamic and hasattr(torch.export, "Dim"):
        batch = torch.export.Dim("batch", min=2, max=64)
        program = torch.export.export(module, inputs, dynamic_shapes=({0: batch}, {0: batch}))
    elif dynamic:
        ranges = [torch.export.dynamic_dim(inputs[0], 0) >= 2, torch.export.dynamic_dim(inputs[0], 0) <= 64,
                  torch.export.dynamic_dim(inputs[1], 0) == torch.export.dynamic_dim(inputs[0], 0)]
        program = torch.export.export(module, inputs, constraints=ranges)
    else:
        program = torch.export.export(module, inputs)
    torch.export.save(program, str(path))


def scrubbed(value):
    if isinstance(value, dict):
        return {key: scrubbed(item) for key, item in value.items() if key not in ("stack_trace", "example_inputs")}
    return [scrubbed(item) for item in value] if isinstance(value, list) else value


def scrub(source, target):
    """The archive without what tells where it was made."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".debug_pkl") or "sample_inputs" in name or "example_inputs" in name:
                continue
            if name.endswith("model.json") or name == "serialized_exported_program.json":
                data = json.dumps(scrubbed(json.loads(data)), separators=(",", ":")).encode()
            packed = len(data) > 1000 and name.endswith(".json")  # texts; torch stores weights as they are
            new.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED)


def described(tensor, name=None):
    result = {} if name is None else {"name": name}
    return {**result, "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "values": tensor.detach().flatten().tolist()}


def record(name, how, module, inputs, save):
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = pathlib.Path(folder) / f"{name}.{'pt2' if how == 'export' else 'pt'}"
        try:
            module = module() if callable(module) and not isinstance(module, nn.Module) else module
            if how != "pt2e":
                module = module.eval()
            save(module, path)
        except Exception as problem:  # pylint: disable=broad-except  # of PyTorch, of any kind: this version cannot
            print(f"{name} ({how}): PyTorch {VERSION}: {type(problem).__name__} {str(problem).splitlines()[0] if str(problem) else ''}")
            return
        if isinstance(module, Counter):
            module.n.zero_()
        outputs = module(*inputs)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        file = f"{name}_{how}_{VERSION}{path.suffix}"
        scrub(path, CASES / file)
    names = ["words"] if isinstance(module, Words) else ["x", "y"]
    case = {"torch": VERSION, "file": file, "typed": how == "export",
            "inputs": [described(tensor, input_name) for input_name, tensor in zip(names, inputs)], "outputs": [described(o) for o in outputs]}
    (CASES / f"{name}_{how}_{VERSION}.json").write_text(json.dumps(case) + "\n")
    print(f"{file}: {(CASES / file).stat().st_size} bytes")


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    warnings.filterwarnings("ignore")
    CASES.mkdir(exist_ok=True)
    torch.manual_seed(0)
    image, words = (torch.randn(1, 2, 4, 4),), (torch.randint(0, 7, (1, 3)),)
    models = {"net": (Net, image), "counter": (Counter, (torch.randn(3),)), "batch": (Batch, (torch.randn(3, 4), torch.randn(3, 3))),
              "branches": (Branches, (torch.randn(3),)), "loops": (Loops, (torch.randn(3),)), "words": (Words, words)}
    for name, (make, inputs) in models.items():
        if hasattr(torch, "export") and pattern in name:
            record(name, "export", make(), inputs, lambda module, path, name=name, inputs=inputs: exported(module, inputs, path, name == "batch"))
    scripts = {"net": (Net, image, "trace"), "words": (Words, words, "trace"), "decides": (Decides, (torch.tensor([-2.0, 1.5, 1.0]),), "script"),
               "counter": (Counter, (torch.randn(3),), "script"), "quantized": (static_quantized, image, "trace")}
    for name, (make, inputs, how) in scripts.items():
        def save(module, path, how=how, inputs=inputs):
            made = torch.jit.script(module) if how == "script" else torch.jit.trace(module, inputs)
            made.save(str(path))
        if pattern in name:
            record(name, how, make(), inputs, save)
    if hasattr(torch, "export") and pattern in "pt2e":
        try:
            module = pt2e(image)
        except Exception as problem:  # pylint: disable=broad-except
            print(f"pt2e: PyTorch {VERSION}: {type(problem).__name__} {problem}")
            return
        module.eval = lambda: module
        record("pt2e", "export", module, image, lambda module, path: exported(module, image, path, False))


if __name__ == "__main__":
    main()
