"""tract, which computes on the calling thread."""

import tract


def open(task):
    if task.threads != 1:
        raise RuntimeError("tract's Python package has one thread")
    try:
        model = tract.onnx().load(task.model).into_model().into_runnable()
    except tract.TractError as error:  # what failed, its causes, and perhaps a backtrace
        lines = [line.strip() for line in str(error).partition("Stack backtrace")[0].splitlines() if line.strip()]
        raise RuntimeError(": ".join(dict.fromkeys((lines[0], lines[-1])))) from error
    state = model.spawn_state()
    inputs = [tract.Tensor.from_numpy(array) for array in task.inputs.values()]
    return lambda: [result.to_numpy() for result in state.run(inputs)]
