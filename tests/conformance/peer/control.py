"""Recurrent networks and control flow."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .case import BOOL, F32, F64, I32, I64, element_type, generator

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@generator("RNN", "GRU", "LSTM")
def recurrent(c):
    gates = GATES[c.op]
    direction = c.pick("forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    length, batch, width, hidden = c.integer(1, 6), c.integer(1, 3), c.integer(1, 6), c.integer(1, 6)
    layout = 1 if c.at_least(14) and c.chance(0.1) else 0
    if layout:
        c.exclude("layout")

    def weights(*shape):
        return c.parameter(c.values(F32, list(shape), -0.8, 0.8))

    x = c.input(c.values(F32, [length, batch, width]))
    inputs = [x, weights(d, gates * hidden, width), weights(d, gates * hidden, hidden), c.maybe(weights(d, 2 * gates * hidden))]
    lengths = c.values(I32, [batch], 1, length)
    lengths[0] = length
    inputs.append(c.maybe(c.parameter(lengths), 0.4))
    inputs.append(c.maybe(c.input(c.values(F32, [d, batch, hidden], -1, 1)), 0.5))
    if c.op == "LSTM":
        inputs.append(c.maybe(c.input(c.values(F32, [d, batch, hidden], -1, 1)), 0.5))
        inputs.append(c.maybe(weights(d, 3 * hidden), 0.3))
    attributes = {"hidden_size": hidden, "direction": direction if direction != "forward" else c.maybe(direction)}
    if c.chance(0.3):
        names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "Softplus", "Elu"]
        attributes["activations"] = [c.pick(*names) for _ in range(ACTIVATIONS[c.op])] * d
    attributes["clip"] = c.maybe(c.real(0.3, 2), 0.2)
    if c.op == "LSTM" and attributes["clip"] is not None:
        c.exclude("clip")
    if c.op == "GRU":
        attributes["linear_before_reset"] = c.maybe(c.integer(0, 1))
    if c.op == "LSTM":
        attributes["input_forget"] = c.maybe(c.integer(0, 1), 0.3)
    outputs = [n if c.chance(0.8) else "" for n in ("Y", "Y_h", "Y_c")[:3 if c.op == "LSTM" else 2]]
    if not any(outputs):
        outputs[0] = "Y"
    c.finish(inputs, outputs, **attributes)


def value(name, dtype, shape=None):
    return helper.make_tensor_value_info(name, element_type(dtype), shape)


UNARY = ("Relu", "Neg", "Abs", "Tanh", "Exp", "Sigmoid")
BINARY = ("Add", "Sub", "Mul", "Max")


@generator("If")
def branch(c):
    """Each branch computes on captured values; one may nest another If, their shapes may differ, and the one not taken may be impossible."""
    shape = c.shape(1, 3)
    x, y = c.input(c.values(F32, shape)), c.input(c.values(F32, shape))
    taken = c.chance(0.5)
    condition = c.input(np.array(taken))
    outputs = c.integer(1, 2)
    impossible = c.chance(0.2)  # the other branch wants another number of elements

    def body(name, deep):
        nodes, infos = [], []
        for i in range(outputs):
            out, source = f"{name}_o{i}", c.pick(x, y)
            if deep and c.chance(0.2):
                inner = [helper.make_graph([helper.make_node(c.pick(*UNARY), [source], [f"{out}_{k}"])], f"{out}_g{k}", [],
                                           [value(f"{out}_{k}", F32)]) for k in range(2)]
                nodes.append(helper.make_node("If", [condition], [out], then_branch=inner[0], else_branch=inner[1]))
            elif impossible and name != ("yes" if taken else "no"):
                wanted = c.constant(np.array([1] * (len(shape) - 1) + [int(np.prod(shape)) + 1], np.int64))
                nodes.append(helper.make_node("Reshape", [source, wanted], [out]))
            elif c.chance(0.5):
                nodes.append(helper.make_node(c.pick(*BINARY), [x, y], [f"{out}_t"]))
                nodes.append(helper.make_node(c.pick(*UNARY), [f"{out}_t"], [out]))
            elif c.at_least(8) and c.chance(0.3):
                nodes.append(helper.make_node("Concat", [x, y], [out], axis=0))
            else:
                nodes.append(helper.make_node(c.pick(*UNARY), [source], [out]))
            infos.append(value(out, F32))
        return helper.make_graph(nodes, name, [], infos)

    c.finish([condition], outputs, then_branch=body("yes", True), else_branch=body("no", True))


@generator("Loop")
def loop(c):
    """A carried sum and product, a scan output, an end by count or by condition."""
    shape = c.shape(0, 2)
    start, captured = c.input(c.values(F32, shape)), c.input(c.values(F32, shape))
    trips = c.integer(0 if c.chance(0.1) else 1, 5)
    by_condition = c.chance(0.5)
    limit = c.constant(np.array(c.integer(1, 5), np.int64))
    scans = c.integer(0, 2)
    if c.chance(0.15):
        scans = 0
    nodes = [helper.make_node(c.pick(*BINARY), ["carried", captured], ["sum"]), helper.make_node(c.pick("Tanh", "Neg", "Relu"), ["sum"], ["next"])]
    if by_condition:
        nodes.append(helper.make_node("Less", ["i", limit], ["go"]) if c.at_least(9) else helper.make_node("Identity", ["in"], ["go"]))
    else:
        nodes.append(helper.make_node("Identity", ["in"], ["go"]))
    outputs = [value("go", BOOL, []), value("next", F32, shape)]
    for k in range(scans):
        nodes.append(helper.make_node("Abs" if k else "Identity", ["sum"], [f"scan{k}"]))
        outputs.append(value(f"scan{k}", F32, shape))
    body = helper.make_graph(nodes, "body", [value("i", I64, []), value("in", BOOL, []), value("carried", F32, shape)], outputs)
    count = c.setting(np.array(trips, np.int64)) if c.chance(0.7) else c.input(np.array(trips, np.int64))
    c.finish([count, c.maybe(c.constant(np.array(True))) if by_condition else None, start], 1 + scans, body=body)


@generator("Scan")
def scan(c):
    """States and scanned inputs in either direction, over any axis."""
    c.opset = max(c.opset, 9)
    width, length, states, inputs, outputs = c.integer(1, 5), c.integer(1, 5), c.integer(0, 2), c.integer(1, 2), c.integer(1, 2)
    names = [c.input(c.values(F32, [width])) for _ in range(states)]
    axes, out_axes = [c.integer(-2, 1) for _ in range(inputs)], [c.integer(-2, 1) for _ in range(outputs)]
    names += [c.input(c.values(F32, [length, width] if a % 2 == 0 else [width, length])) for a in axes]
    nodes, infos, last = [], [], "x0"
    for s in range(states):
        nodes.append(helper.make_node(c.pick(*BINARY), [f"s{s}", "x0"], [f"n{s}"]))
        infos.append(value(f"n{s}", F32, [width]))
        last = f"n{s}"
    for o in range(outputs):
        nodes.append(helper.make_node(c.pick(*BINARY), [last, f"x{inputs - 1}"], [f"o{o}"]))
        infos.append(value(f"o{o}", F32, [width]))
    body = helper.make_graph(nodes, "body", [value(f"s{s}", F32, [width]) for s in range(states)] +
                             [value(f"x{i}", F32, [width]) for i in range(inputs)], infos)
    attributes = {}
    if any(a % 2 for a in axes) or c.chance(0.5):
        attributes["scan_input_axes"] = [a if c.at_least(11) else a % 2 for a in axes]
    if any(a % 2 for a in out_axes) or c.chance(0.5):
        attributes["scan_output_axes"] = [a if c.at_least(11) else a % 2 for a in out_axes]
    attributes["scan_input_directions"] = c.maybe([c.integer(0, 1) for _ in range(inputs)])
    attributes["scan_output_directions"] = c.maybe([c.integer(0, 1) for _ in range(outputs)])
    c.finish(names, states + outputs, body=body, num_scan_inputs=inputs, **attributes)
