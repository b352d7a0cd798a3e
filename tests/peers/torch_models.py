"""Models of PyTorch, by torch.export and as TorchScript, beside PyTorch itself: operators over shapes, types and keyword arguments, and
networks with random weights."""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TOLERANCE = 1e-5


class Function(nn.Module):
    """A function of tensors as a module, whose inputs are a, b, c."""

    def __init__(self, function, count):
        super().__init__()
        self.function = function
        self.count = count

    def forward(self, a, b=None, c=None):
        return self.function(*(a, b, c)[: self.count])


def real(*shape):
    return torch.randn(shape)


def whole(*shape, low=-5, high=6, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


def positive(*shape):
    return torch.rand(shape) + 0.1


UNARY = ["abs", "neg", "sign", "relu", "floor", "ceil", "round", "exp", "sin", "cos", "tanh", "sigmoid", "atan", "sinh", "cosh", "asinh", "erf",
         "expm1", "square", "trunc", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "reciprocal"]
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "floor_divide"]
ACTIVATIONS = [F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh, F.relu6, F.elu, F.celu,
               F.selu, F.leaky_relu, F.softplus, lambda x: F.softplus(x, 2, 1), F.logsigmoid, lambda x: F.glu(x, 1), lambda x: F.softmax(x, 1),
               lambda x: F.log_softmax(x, -1), lambda x: F.normalize(x, dim=1), F.hardshrink, lambda x: F.softshrink(x, 0.3),
               lambda x: F.threshold(x, 0.1, -1)]


def operators():
    """name -> (function, inputs)"""
    cases = {}
    for name in UNARY:
        cases[name] = (getattr(torch, name), [real(2, 3)])
    for name in POSITIVE:
        cases[name] = (getattr(torch, name), [positive(2, 3)])
    for name in BINARY:
        function = getattr(torch, name)
        cases[name] = (function, [real(2, 3), positive(3)])
        cases[name + " of integers"] = (function, [whole(2, 3), whole(2, 3, low=1)])
        cases[name + " of a number"] = (lambda a, function=function: function(a, 2) if function not in (torch.maximum, torch.minimum, torch.atan2)
                                        else function(a, torch.tensor(2.0)), [real(2, 3)])
    for i, function in enumerate(ACTIVATIONS):
        cases[f"activation {i}"] = (function, [real(2, 4)])
    more = {
        "promotion": (lambda a, b: a * b + 1.5, [whole(2, 3), real(3)]),
        "true division": (lambda a: a / 2, [whole(2, 3)]),
        "alpha": (lambda a, b: torch.sub(a, b, alpha=3), [real(2, 3), real(2, 3)]),
        "pow": (lambda a: a ** 3 + a ** 0.5 + 2 ** a, [positive(4)]),
        "rounding": (lambda a: torch.div(a, 2, rounding_mode="floor") + torch.div(a, 3, rounding_mode="trunc"), [real(5)]),
        "logic": (lambda a, b: (a > 0) & (b > 0) | ~(a < b), [real(4), real(4)]),
        "bits": (lambda a, b: (a & b) ^ (a | 5), [whole(4), whole(4)]),
        "clamp": (lambda a: torch.clamp(a, -0.5) + torch.clamp(a, max=0.5) + a.clamp(-0.1, 0.1), [real(5)]),
        "where": (lambda a, b: torch.where(a > 0, a, b) + a.masked_fill(a > 0, 7.0), [real(4), real(4)]),
        "casts": (lambda a: a.to(torch.int32).to(torch.float64).float() + a.bool().int(), [real(4)]),
        "sum": (lambda a: (a.sum(), a.sum(1), a.sum((0, 2), keepdim=True), a.mean(-1), a.prod(0)), [real(2, 3, 4)]),
        "sum of bools": (lambda a: ((a > 0).sum(), (a > 0).any(1), (a > 0).all()), [real(2, 3)]),
        "extremes": (lambda a: (a.max(), a.min(1), a.amax((0, 1)), a.argmax(1), a.argmin()), [real(2, 3)]),
        "deviation": (lambda a: (a.var(1), a.std(), a.var(1, unbiased=False, keepdim=True)), [real(3, 4)]),
        "norms": (lambda a: (a.norm(), torch.linalg.vector_norm(a, 1, dim=1), torch.linalg.vector_norm(a, float("inf")), a.norm(3, 1)), [real(3, 4)]),
        "orders": (lambda a: (a.topk(2, 1), a.sort(-1, descending=True), a.argsort(0)), [real(3, 4)]),
        "cumsum": (lambda a: a.cumsum(1), [real(3, 4)]),
        "diff": (lambda a, b: (a.diff(), a.diff(n=2, dim=0), a.diff(dim=1, prepend=b), a.diff(append=b), (a > 0).diff()), [real(3, 4), real(3, 1)]),
        "views": (lambda a: (a.view(-1), a.reshape(4, 6), a.flatten(1), a.flatten(0, 1), a.unflatten(2, (2, 2)), a.unsqueeze(-1).squeeze(-1)), [real(2, 3, 4)]),
        "axes": (lambda a: (a.transpose(0, 2), a.permute(1, 2, 0), a.mT, a.flip(0, 2), a.roll(1, 1), a.roll((1, 2), (0, 2))), [real(2, 3, 4)]),
        "repeats": (lambda a: (a.expand(2, 3, 4), a.repeat(2, 2, 1), a.tile(2), a.repeat_interleave(2, 1)), [real(3, 4).unsqueeze(0)]),
        "parts": (lambda a: (a[1], a[:, 1:3], a[..., ::2], a[:, -1], a.narrow(1, 1, 2), a.select(2, 0)), [real(2, 4, 4)]),
        "split": (lambda a: (a.chunk(3, 1), a.split(2, 1), a.split([1, 4], 1), a.unbind(0)), [real(2, 5)]),
        "join": (lambda a, b: (torch.cat([a, b], 1), torch.stack([a, b], -1), torch.hstack([a, b])), [real(2, 3), real(2, 3)]),
        "index": (lambda a, b: (a[b], a[:, b], a[b, b], a[:, b, b]), [real(4, 4, 4), whole(3, low=0, high=4)]),
        "gather": (lambda a, b: (a.gather(1, b), a.index_select(0, b[0]), a.scatter(1, b, 5.0)), [real(3, 4), whole(3, 2, low=0, high=3)]),
        "triangles": (lambda a: (a.tril(), a.triu(1), torch.diagonal(a)), [real(4, 5)]),
        "made": (lambda a: (torch.zeros_like(a) + torch.ones(3), torch.full((2, 3), 7.0) + a, torch.arange(3) + a, torch.arange(0, 6, 2), a.new_zeros(2)), [real(2, 3)]),
        "written": (lambda a: _written(a), [real(3, 4)]),
        "put": (lambda a, b: a.index_put((b,), torch.zeros(4)), [real(3, 4), whole(2, low=0, high=3)]),
        "matmul": (lambda a, b: (a @ b, torch.bmm(a, b), torch.einsum("bij,bjk->bik", a, b)), [real(2, 3, 4), real(2, 4, 5)]),
        "addmm": (lambda a, b, c: (torch.addmm(a, b, c, beta=2, alpha=3), F.linear(b, c.t()), torch.mm(b, c), torch.mv(b, c[:, 0])), [real(3, 5), real(3, 4), real(4, 5)]),
        "attention": (lambda a, b, c: (F.scaled_dot_product_attention(a, b, c), F.scaled_dot_product_attention(a, b, c, is_causal=True),
                                       F.scaled_dot_product_attention(a, b, c, attn_mask=torch.ones(5, 5).tril().bool(), scale=0.3)), [real(2, 3, 5, 4) for _ in range(3)]),
        "conv1d": (lambda a, b: (F.conv1d(a, b), F.conv1d(a, b, stride=2, padding=1, dilation=2), F.conv1d(a, b, padding="same")), [real(2, 3, 9), real(4, 3, 3)]),
        "conv2d": (lambda a, b, c: (F.conv2d(a, b, c, (2, 1), (1, 0)), F.conv2d(a[0], b)), [real(1, 4, 7, 8), real(6, 4, 3, 3), real(6)]),
        "groups": (lambda a, b: F.conv2d(a, b, groups=2), [real(1, 4, 7, 8), real(6, 2, 3, 3)]),
        "conv_transpose": (lambda a, b: F.conv_transpose2d(a, b, stride=2, padding=1, output_padding=1), [real(1, 4, 5, 5), real(4, 3, 3, 3)]),
        "pools": (lambda a: (F.max_pool2d(a, 3, 2, 1), F.avg_pool2d(a, 2), F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False),
                             F.adaptive_avg_pool2d(a, 1), F.adaptive_avg_pool2d(a, (3, 4)), F.max_pool2d(a, 2, return_indices=True)), [real(2, 3, 8, 9)]),
        "resize": (lambda a: (F.interpolate(a, scale_factor=2.0), F.interpolate(a, (7, 9), mode="bilinear"), F.interpolate(a, (7, 9), mode="bilinear", align_corners=True),
                              F.interpolate(a, (8, 8), mode="bicubic")), [real(1, 2, 4, 5)]),
        "pads": (lambda a: (F.pad(a, (1, 2)), F.pad(a, (1, 2, 0, 1), value=3.0), F.pad(a, (1, 1, 1, 1), mode="reflect"), F.pad(a, (1, 1, 2, 1), mode="replicate")), [real(1, 2, 4, 5)]),
        "shuffle": (lambda a: F.pixel_shuffle(a, 2), [real(1, 8, 3, 3)]),
        "norm layers": (lambda a: (F.layer_norm(a, (5,)), F.group_norm(a, 2), F.instance_norm(a)), [real(2, 4, 5)]),
        "near zero": (lambda a: (torch.log1p(a * 1e-6), torch.expm1(a * 1e-6), torch.special.log1p(a.abs()), a.sigmoid().logit(1e-6)), [real(2, 3)]),
        "decimals": (lambda a: (a.round(decimals=2), (a * 100).round(decimals=-1)), [real(2, 3)]),
        "numbers of traces": (lambda a: (a * 2.5, a + 3, a / 4, 1.5 - a, a.clamp(max=3.5)), [whole(3)]),
        "moved axes": (lambda a: (a.movedim(0, -1), a.moveaxis((0, 1), (2, 0)), a[0].T, a[0].H, a.mH, a.adjoint(), a.swapaxes(0, 1)), [real(2, 3, 4)]),
        "windows": (lambda a: (a.unfold(1, 3, 2), F.unfold(a[:, None], 2, padding=1), F.fold(F.unfold(a[:, None], 2), (4, 6), 2)), [real(2, 4, 6)]),
        "outer": (lambda a, b: (torch.outer(a, b), torch.dot(a, a), torch.addmv(a, a[:, None] * b, b)), [real(3), real(4)]),
        "cumprod": (lambda a: a.cumprod(1), [real(3, 4)]),
        "among sorted": (lambda a: (torch.bucketize(a, torch.arange(-2., 3.)), torch.bucketize(a, torch.arange(-2., 3.), right=True),
                                    torch.searchsorted(a.sort(-1)[0], a, side="right")), [real(3, 4)]),
        "scattered": (lambda a, b: (a.index_add(1, b, a[:, :2], alpha=2), a.index_copy(1, b, a[:, 2:]), a.index_fill(1, b, 7),
                                    *(a.scatter_reduce(1, b.expand(2, 2), a, how, include_self=keep)
                                      for how in ("sum", "prod", "mean", "amax", "amin") for keep in (True, False))), [real(3, 4), torch.tensor([2, 0])]),
        "where one": (lambda a: (*torch.where(a > 0), torch.masked_select(a, a < 0)), [real(3, 4)]),
        "divisor": (lambda a: (F.avg_pool2d(a, 2, divisor_override=3), F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, divisor_override=5)), [real(2, 3, 8, 9)]),
        "unpool": (lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), [real(2, 3, 6, 6)]),
        "spectra": (lambda a: (torch.fft.rfft(a).abs(), torch.fft.irfft(torch.fft.rfft(a, 9, norm="ortho"), 9, norm="ortho"), torch.fft.rfft2(a).angle(),
                               torch.view_as_real(torch.fft.fftn(a)), torch.fft.ifft(torch.fft.fft(a, dim=0), dim=0).real, torch.fft.irfftn(torch.fft.rfftn(a))), [real(3, 8)]),
        "complex": (lambda a, b: (torch.view_as_real(torch.complex(a, b) * torch.polar(a.abs(), b)), (torch.complex(a, b) / torch.complex(b, a).conj()).abs(),
                                  (a - torch.complex(a, b)).imag, torch.complex(a, b).mT.reshape(-1).real, torch.complex(a, b).sum(1).angle()), [real(2, 3), real(2, 3)]),
        "stft": (lambda a: (torch.stft(a, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),
                            torch.istft(torch.stft(a, 16, 4, window=torch.hann_window(16), return_complex=True), 16, 4, window=torch.hann_window(16), length=64)), [real(2, 64)]),
        "formulas": (lambda a, b: (torch.exp2(a), a.frac(), torch.deg2rad(a), torch.hypot(a, b), torch.lerp(a, b, 0.3), torch.logaddexp(a, b), torch.xlogy(a, b.abs()),
                                   torch.nan_to_num(a / 0.0), torch.isclose(a, b, rtol=1)), [real(3, 4), real(3, 4)]),
        "distances": (lambda a, b: (torch.cdist(a, b), torch.cdist(a, b, p=1.0), F.pairwise_distance(a, b), F.cosine_similarity(a, b)), [real(3, 4), real(3, 4)]),
        "medians": (lambda a: (a.median(), a.median(1), a.kthvalue(2, 0), torch.aminmax(a, dim=1), torch.var_mean(a, 1), torch.std_mean(a), torch.count_nonzero(a > 0, 1),
                               (a / a).nansum(), (a / a).nanmean(1)), [real(3, 5)]),
        "made of parts": (lambda a: (a + torch.eye(3, 4), a + torch.linspace(-1, 2, 4), torch.vstack([a, a]), a.ravel(), a.take(torch.tensor([3, 0])),
                                     *torch.meshgrid(a[0], a[:, 0], indexing="xy")), [real(3, 4)]),
        "exact": (lambda a: (F.interpolate(a, (7, 3), mode="nearest-exact"), F.channel_shuffle(a, 2)), [real(1, 4, 4, 5)]),
        "affine grid": (lambda a: F.affine_grid(a, [2, 1, 3, 4], align_corners=False), [real(2, 2, 3)]),
        "antialias": (lambda a: (F.interpolate(a, (3, 4), mode="bilinear", antialias=True), F.interpolate(a, (3, 12), mode="bicubic", antialias=True)), [real(1, 2, 9, 9)]),
        "embedding": (lambda a, b: F.embedding(a, b), [whole(2, 3, low=0, high=7), real(7, 4)]),
    }
    cases.update(more)
    return cases


def _written(a):
    y = a.clone()
    y[1:3].mul_(2)
    y[:, 0] = 5
    y.view(-1)[3] += 1
    return y, y.sum()


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(6, 8, 2, **options)

    def forward(self, a):
        y, state = self.layer(a)
        return (y, *state) if isinstance(state, tuple) else (y, state)


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(6, 8), nn.GRUCell(6, 8), nn.RNNCell(6, 8), nn.RNNCell(6, 8, nonlinearity="relu")])

    def forward(self, a, b):
        return (*self.cells[0](a, (b, b + 1)), self.cells[1](a, b), self.cells[2](a, b), self.cells[3](a, b))


class Masked(nn.Module):
    """Attention that PyTorch fuses, with padding: without weights, with them, and with a mask of queries by keys too."""

    def __init__(self):
        super().__init__()
        self.plain = nn.MultiheadAttention(16, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")

    def forward(self, a):
        padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        future = torch.ones(5, 5).triu(1).bool()
        return (self.plain(a, a, a, key_padding_mask=padding, need_weights=False)[0], *self.plain(a, a, a, key_padding_mask=padding),
                self.plain(a, a, a, attn_mask=future, need_weights=False)[0], self.layer(a, src_mask=future, src_key_padding_mask=padding))


class Attention(nn.Module):
    """A block of a transformer with a cache of keys and values that it is given and gives back."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, a, b, c):
        q, k, v = [part.view(1, -1, 2, 8).transpose(1, 2) for part in self.inner(self.norm(a)).chunk(3, -1)]
        k, v = torch.cat([b, k], 2), torch.cat([c, v], 2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, -1, 16)
        return a + self.out(y), k, v


class UNet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
        self.down, self.middle, self.up = block(3, 4), block(4, 8), block(8, 4)
        self.wide = nn.ConvTranspose2d(8, 4, 2, 2)

    def forward(self, a):
        x = self.down(a)
        y = self.wide(self.middle(F.max_pool2d(x, 2)))
        return self.up(torch.cat([x, y], 1))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, a):
        self.n.add_(a)
        return self.n * 2


class Decides(nn.Module):
    def forward(self, a):
        if bool(a.sum() > 0):
            y = a * 2
        else:
            y = -a
        for i in range(int(a.abs().max()) + 1):
            y = y + i
        return y


def networks():
    return {
        "lstm": (Recurrent(nn.LSTM, bidirectional=True, batch_first=True), [real(2, 5, 6)]),
        "gru": (Recurrent(nn.GRU), [real(5, 2, 6)]),
        "rnn": (Recurrent(nn.RNN, nonlinearity="relu"), [real(5, 2, 6)]),
        "cells": (Cells(), [real(2, 6), real(2, 8)]),
        "masked": (Masked(), [real(2, 5, 16)]),
        "cache": (Attention(), [real(1, 1, 16), real(1, 2, 4, 8), real(1, 2, 4, 8)]),
        "unet": (UNet(), [real(1, 3, 8, 8)]),
        "encoder": (nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)), [real(2, 5, 16)]),
        "counter": (Counter(), [real(3)]),
        "decides": (Decides(), [real(3)]),
    }


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in flat(item)]


def saved(module, inputs, folder):
    """Files of the module, by how each was made; torch cannot make each of each."""
    def exported(path):
        torch.export.save(torch.export.export(module, tuple(inputs)), path)
    ways = {"export": (".pt2", exported), "trace": (".pt", lambda path: torch.jit.trace(module, tuple(inputs), check_trace=False).save(path)),
            "script": (".jit", lambda path: torch.jit.script(module).save(path))}
    for how, (suffix, save) in ways.items():
        path = folder / f"{how}{suffix}"
        try:
            save(str(path))
        except Exception:  # of PyTorch, of any kind
            continue
        yield how, path


def run(quench, how, path, inputs, expected, folder):
    """"" or what is wrong."""
    out = folder / f"out-{how}"
    arguments = [quench, "run", str(path), "--output", str(out)]
    names = argument_names(path, how)
    for name, tensor in zip(names, inputs):
        file = folder / f"{name}.npy"
        np.save(file, tensor.numpy())
        arguments += ["--input", f"{name}={file}"]
        if how != "export":
            arguments += ["--shape", f"{name}={','.join(map(str, tensor.shape))}:{str(tensor.dtype).removeprefix('torch.')}"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1]
    got = [np.load(file) for file in out.glob("*.npy")]
    for i, tensor in enumerate(expected):
        wanted = tensor.detach().numpy().astype(np.float64)
        scale = max(1.0, np.abs(np.nan_to_num(wanted)).max()) if wanted.size else 1.0
        if not any(one.shape == wanted.shape and np.allclose(one.astype(np.float64), wanted, 0, TOLERANCE * scale, equal_nan=True) for one in got):
            return f"output {i} differs"
    return ""


def argument_names(path, how):
    if how == "export":
        program = torch.export.load(str(path))
        return list(program.graph_signature.user_inputs)
    return [argument.name for argument in torch.jit.load(str(path)).forward.schema.arguments[1:]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quench", required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    cases = {name: (Function(function, len(inputs)), inputs) for name, (function, inputs) in operators().items()}
    cases.update(networks())
    failed = passed = 0
    for name, (module, inputs) in cases.items():
        if args.only not in name:
            continue
        module = module.eval()
        with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
            folder = pathlib.Path(temporary)
            files = list(saved(module, inputs, folder))
            if isinstance(module, Counter):
                module.n.zero_()
            expected = flat(module(*[tensor.clone() for tensor in inputs]))
            if not files:
                print(f"FAILED {name}: torch saves it in no way")
                failed += 1
            for how, path in files:
                if isinstance(module, Counter) and how == "trace":
                    continue  # tracing has run it, and what it wrote is in the file
                problem = run(args.quench, how, path, inputs, expected, folder)
                if problem:
                    print(f"FAILED {name} ({how}): {problem}", flush=True)
                failed, passed = failed + bool(problem), passed + (not problem)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
