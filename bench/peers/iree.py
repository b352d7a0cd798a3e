"""IREE: its import of ONNX, and code of llvm-cpu for this CPU; on the calling thread where one is asked for."""

import subprocess
import sys

import iree.compiler
import iree.runtime as rt
import onnx


def convert(task):
    """The compiled module, of one function with the graph's name."""
    imported, compiled = task.folder / "iree.mlir", task.folder / "iree.vmfb"
    command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(task.model), "-o", str(imported)]
    opset = next(i.version for i in onnx.load(str(task.model), load_external_data=False).opset_import if i.domain in ("", "ai.onnx"))
    if opset < 17:  # what its importer knows best, as its documentation says
        command += ["--opset-version", "17"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("IREE's import: " + done.stderr[-200:])
    try:
        iree.compiler.compile_file(str(imported), output_file=str(compiled), input_type="onnx", target_backends=["llvm-cpu"],
                                   extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"])
    except iree.compiler.CompilerToolError as error:
        errors = [line for line in str(error).splitlines() if "error:" in line] or ["failed"]
        raise RuntimeError("IREE's compiler: " + errors[0].partition("error:")[2].strip()) from error
    return compiled


def open(task):
    compiled = convert(task)
    if task.threads > 1:  # of the process: the first number counts
        rt.flags.parse_flags(f"--task_topology_group_count={task.threads}")
    config = rt.Config("local-sync" if task.threads == 1 else "local-task")
    module = rt.load_vm_modules(rt.VmModule.mmap(config.vm_instance, str(compiled)), config=config)[0]
    name = next(n for n in module.vm_module.function_names if not n.startswith("__") and not n.endswith("$async"))
    function = module[name]
    arrays = [rt.asdevicearray(config.device, array) for array in task.inputs.values()]

    def run():
        results = function(*arrays)
        return [r.to_host() for r in (results if isinstance(results, (tuple, list)) else (results,))]

    return run
