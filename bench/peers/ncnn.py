"""ncnn in f32, with models that pnnx converts."""

import importlib.util
import pathlib
import re
import subprocess

import ncnn
import numpy as np


def convert(task):
    """Runs the program pnnx: its Python module needs PyTorch, which conversion from ONNX does not."""
    package = importlib.util.find_spec("pnnx")
    if package is None:
        raise RuntimeError("not installed (pnnx, ncnn's converter): pip install --no-deps pnnx")
    model = task.folder / "pnnx" / (re.sub(r"\W", "_", task.model.stem) + ".onnx")
    model.parent.mkdir()
    model.symlink_to(task.model)
    program = pathlib.Path(package.origin).parent / "pnnx"
    done = subprocess.run([str(program), str(model), "fp16=0"], capture_output=True, text=True)
    if not model.with_suffix(".ncnn.param").exists():
        raise RuntimeError("pnnx: " + ((done.stderr or done.stdout).strip()[-200:] or f"ended with {done.returncode}"))
    return model


def batch_axes(script):
    """The batch axis by operand, which ncnn does not have: pnnx says so in the script that it writes."""
    return {name: int(axis) for name, axis in re.findall(r"\b((?:in|out)\d+)\.numpy\(\)?(?:, )?batch_index=(\d+)", script)}


def open(task):
    model = convert(task)
    axes = batch_axes(model.with_name(model.stem + "_ncnn.py").read_text())
    net = ncnn.Net()
    net.opt.num_threads = task.threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = net.opt.use_bf16_storage = False
    if net.load_param(str(model.with_suffix(".ncnn.param"))) != 0 or net.load_model(str(model.with_suffix(".ncnn.bin"))) != 0:
        raise RuntimeError("ncnn cannot load what pnnx wrote: a layer is unknown to it")
    mats = {}
    for index, array in enumerate(task.inputs.values()):
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        name = f"in{index}"
        mats[name] = (ncnn.Mat(array, batch_index=axes[name]) if name in axes else ncnn.Mat(array)).clone()
    names = [f"out{index}" for index in range(len(task.outputs))]

    def run():
        results = []
        with net.create_extractor() as extractor:
            for name, mat in mats.items():
                if extractor.input(name, mat) != 0:
                    raise RuntimeError(f"ncnn has no input {name}")
            for name in names:
                code, mat = extractor.extract(name)
                if code != 0:
                    raise RuntimeError(f"ncnn computes no {name}: code {code}")
                results.append(np.array(mat.numpy(batch_index=axes[name]) if name in axes else mat))
            return results

    return run
