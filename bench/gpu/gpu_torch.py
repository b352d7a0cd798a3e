"""PyTorch's side: the networks of bench/models/networks.py, layer by layer, and a process that times them in f16.

Usage: gpu_torch.py INDEX       what gpu_check.py starts; commands and answers as gpu_worker.py's

{"do": "prepare", "network": name, "batch": n}   makes the network in f16, and runs it eagerly
{"do": "compile"}                                torch.compile(mode="max-autotune"); its CUDA graphs are on
{"do": "burst", "how": "eager" or "compiled", "seconds": s}

Weights are random: they decide no time. Images and convolutions are in channels_last, PyTorch's fastest layout for them.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from gpu_worker import answer, serve, timed

WARM_RUNS = 5


def conv_bn(c_in, c_out, k, stride=1, groups=1, act=None):
    layers = [nn.Conv2d(c_in, c_out, k, stride, (k - 1) // 2, groups=groups, bias=False), nn.BatchNorm2d(c_out)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    def __init__(self, c, width, stride):
        super().__init__()
        out = 4 * width
        self.shortcut = conv_bn(c, out, 1, stride) if stride != 1 or c != out else nn.Identity()
        self.main = nn.Sequential(conv_bn(c, width, 1, act=nn.ReLU), conv_bn(width, width, 3, stride, act=nn.ReLU), conv_bn(width, out, 1))

    def forward(self, x):
        return functional.relu(self.main(x) + self.shortcut(x))


def resnet50():
    layers, c = [conv_bn(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            layers.append(Bottleneck(c, 64 << stage, 2 if i == 0 and stage > 0 else 1))
            c = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


class Inverted(nn.Module):
    def __init__(self, c, t, out, stride):
        super().__init__()
        expand = [] if t == 1 else [conv_bn(c, c * t, 1, act=nn.ReLU6)]
        self.main = nn.Sequential(*expand, conv_bn(c * t, c * t, 3, stride, c * t, nn.ReLU6), conv_bn(c * t, out, 1))
        self.adds = stride == 1 and c == out

    def forward(self, x):
        return x + self.main(x) if self.adds else self.main(x)


def mobilenet_v2():
    layers, c = [conv_bn(3, 32, 3, 2, act=nn.ReLU6)], 32
    for t, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            layers.append(Inverted(c, t, out, stride if i == 0 else 1))
            c = out
    layers.append(conv_bn(c, 1280, 1, act=nn.ReLU6))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A transformer's; norms before its parts, or after them."""

    def __init__(self, width, heads, hidden, pre_norm):
        super().__init__()
        attention, mlp = Attention(width, heads), nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        norms = [nn.LayerNorm(width) for _ in range(2)]
        order = [norms[0], attention, norms[1], mlp] if pre_norm else [attention, norms[0], mlp, norms[1]]
        self.parts, self.pre_norm = nn.ModuleList(order), pre_norm

    def forward(self, x):
        a, b, c, d = self.parts
        if self.pre_norm:
            x = x + b(a(x))
            return x + d(c(x))
        x = b(x + a(x))
        return d(x + c(x))


class Vit(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.blocks = nn.Sequential(*[Block(width, 12, 4 * width, True) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bert(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.words, self.types = nn.Embedding(30522, width), nn.Embedding(2, width)
        self.places = nn.Parameter(0.02 * torch.randn(512, width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*[Block(width, 12, 4 * width, False) for _ in range(12)])
        self.pooler = nn.Linear(width, width)

    def forward(self, ids, types):
        x = self.norm(self.words(ids) + self.types(types) + self.places[: ids.shape[1]])
        x = self.blocks(x)
        return x, torch.tanh(self.pooler(x[:, 0]))


NETWORKS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "bert_base": Bert, "vit_b16": Vit}


def inputs_of(network, batch):
    if network == "bert_base":
        return [torch.randint(0, high, (batch, 128)) for high in (30522, 2)]
    return [torch.rand(batch, 3, 224, 224) * 2 - 1]


class TorchWorker:
    def __init__(self, index):
        torch.cuda.set_device(index)
        torch.manual_seed(1)
        self._how = {}

    def prepare(self, network, batch):
        model = NETWORKS[network]().eval().cuda().half()
        inputs = [x.cuda() for x in inputs_of(network, batch)]
        self._inputs = [x.half() if x.is_floating_point() else x for x in inputs]
        if self._inputs[0].dim() == 4:
            model = model.to(memory_format=torch.channels_last)
            self._inputs = [x.contiguous(memory_format=torch.channels_last) for x in self._inputs]
        self._how["eager"] = model
        self._warm("eager")
        return {"torch": torch.__version__}

    def compile(self):
        started = time.perf_counter()
        self._how["compiled"] = torch.compile(self._how["eager"], mode="max-autotune")
        self._warm("compiled")
        return {"compile_s": time.perf_counter() - started}

    def burst(self, how, seconds):
        with torch.inference_mode():
            return timed(lambda: self._run(how), seconds)

    def _run(self, how):
        self._how[how](*self._inputs)
        torch.cuda.synchronize()

    def _warm(self, how):
        with torch.inference_mode():
            for _ in range(WARM_RUNS):
                self._run(how)


if __name__ == "__main__":
    made = []
    print(json.dumps(answer(lambda: made.append(TorchWorker(int(sys.argv[1]))) or {})), flush=True)
    if made:
        serve(made[0])
