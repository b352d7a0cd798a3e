"""Branches, loops, variables, calls and custom operators."""

import struct

import numpy as np

from .case import generator, numbers, short


def subgraph(c, name, inputs, outputs, tensors, operators):
    """Adds a subgraph; its place in the model."""
    c.subgraphs.append({"name": name, "tensors": tensors, "operators": operators, "inputs": inputs, "outputs": outputs})
    return len(c.subgraphs)


def value(name, kind, shape, values=None):
    return {"name": name, "type": kind, "shape": list(shape)} | ({} if values is None else {"values": values})


def binary(c, name, operator, shape):
    """A subgraph of two floats and one operator."""
    tensors = [value(f"{name}_{n}", "FLOAT32", shape) for n in "abr"]
    options = [f"{operator.capitalize()}Options", {}]
    return subgraph(c, name, [0, 1], [2], tensors, [{"operator": operator, "inputs": [0, 1], "outputs": [2], "options": options}])


@generator("IF")
def if_(c):
    shape = c.shape()
    first, second = (int(i) for i in c.rng.permutation(3)[:2])
    names = ("ADD", "MUL", "SUB")
    fields = {"then_subgraph_index": binary(c, "then", names[first], shape), "else_subgraph_index": binary(c, "else", names[second], shape)}
    condition = c.plain_input(c.chance(0.5), "BOOL")
    c.finish([condition, c.input(shape), c.input(shape)], ("IfOptions", fields))


@generator("WHILE")
def while_(c):
    """Counts to a limit and multiplies as often."""
    shape, limit, factor = c.shape(), c.integer(0, 4), c.real(0.5, 1.5)
    condition = subgraph(c, "condition", [0, 1], [3], [value("cond_i", "INT32", []), value("cond_x", "FLOAT32", shape),
                                                      value("cond_limit", "INT32", [], [limit]), value("cond_go", "BOOL", [])],
                         [{"operator": "LESS", "inputs": [0, 2], "outputs": [3], "options": ["LessOptions", {}]}])
    body = subgraph(c, "body", [0, 1], [4, 5], [value("body_i", "INT32", []), value("body_x", "FLOAT32", shape), value("body_one", "INT32", [], [1]),
                                                value("body_factor", "FLOAT32", [], [short(factor)]), value("body_next", "INT32", []),
                                                value("body_product", "FLOAT32", shape)],
                    [{"operator": "ADD", "inputs": [0, 2], "outputs": [4], "options": ["AddOptions", {}]},
                     {"operator": "MUL", "inputs": [1, 3], "outputs": [5], "options": ["MulOptions", {}]}])
    fields = {"cond_subgraph_index": condition, "body_subgraph_index": body}
    c.finish([c.plain_input(c.integer(0, 2), "INT32"), c.input(shape)], ("WhileOptions", fields), kinds=["INT32", "FLOAT32"])


@generator("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
def variables(c):
    """A sum over runs: a variable that another subgraph sets once."""
    shape = c.shape()
    handle = {"operator": "VAR_HANDLE", "inputs": [], "outputs": [0], "options": ["VarHandleOptions", {"container": "", "shared_name": "sum"}]}
    begin = np.full(shape, c.real(-2, 2), np.float32)
    c.keep("sum", begin)
    init = subgraph(c, "init", [], [], [value("init_handle", "RESOURCE", []), value("init_value", "FLOAT32", shape, numbers(begin))],
                    [handle, {"operator": "ASSIGN_VARIABLE", "inputs": [0, 1], "outputs": [], "options": ["AssignVariableOptions", {}]}])
    c.operators.append({"operator": "CALL_ONCE", "inputs": [], "outputs": [], "options": ["CallOnceOptions", {"init_subgraph_index": init}]})
    resource = c.add("VAR_HANDLE", [], ["RESOURCE"], ("VarHandleOptions", {"container": "", "shared_name": "sum"}))
    old = c.add("READ_VARIABLE", resource, ["FLOAT32"], ("ReadVariableOptions", {}))
    total = c.add("ADD", [*old, c.input(shape)], ["FLOAT32"], ("AddOptions", {}))
    c.operators.append({"operator": "ASSIGN_VARIABLE", "inputs": [*resource, *total], "outputs": [], "options": ["AssignVariableOptions", {}]})
    c.give(total[0], "FLOAT32")


@generator("STABLEHLO_COMPOSITE")
def composite(c):
    """A name for a subgraph, which says what it does."""
    shape = c.shape()
    place = binary(c, "decomposition", "MUL", shape)
    fields = {"name": "quench.product", "decomposition_subgraph_index": place, "composite_attributes": list(flexbuffer({}))}
    c.finish([c.input(shape), c.input(shape)], options_2=["StableHLOCompositeOptions", fields])


def flexbuffer(fields):
    """A FlexBuffers map of numbers and booleans, in 32 bits: keys, then a vector of them, values, types, and the root."""
    data, keys = bytearray(), {}
    for name in sorted(fields):
        keys[name] = len(data)
        data += name.encode() + b"\0"
    data += bytes(-len(data) % 4)
    data += struct.pack("<I", len(fields))
    of_keys = len(data)
    for name in sorted(fields):
        data += struct.pack("<I", len(data) - keys[name])
    data += struct.pack("<I", len(data) - of_keys) + struct.pack("<I", 4) + struct.pack("<I", len(fields))
    begin = len(data)
    types = bytearray()
    for name in sorted(fields):
        v = fields[name]
        data += struct.pack("<f", v) if isinstance(v, float) else struct.pack("<i", int(v))
        types.append((26 if isinstance(v, bool) else 3 if isinstance(v, float) else 1) << 2 | 2)
    data += types
    data += bytes(-len(data) % 4)
    return bytes(data + struct.pack("<I", len(data) - begin) + bytes([9 << 2 | 2, 4]))


@generator("TFLite_Detection_PostProcess")
def detection_post_process(c):
    anchors, classes = c.integer(2, 8), c.integer(1, 3)
    centre = c.values([anchors, 2], 0.2, 0.8)
    table = np.concatenate([centre, c.values([anchors, 2], 0.2, 0.6)], 1)
    scores = (c.rng.permutation(anchors * (classes + 1)).reshape(1, anchors, classes + 1) + 1) / (anchors * (classes + 1) + 1)
    regular = c.chance(0.3)
    fields = {"max_detections": c.integer(1, 4), "max_classes_per_detection": 1, "num_classes": classes, "nms_score_threshold": c.real(0.05, 0.4),
              "nms_iou_threshold": c.real(0.3, 0.7), "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, "use_regular_nms": regular}
    if regular:
        fields["detections_per_class"] = c.integer(1, 5)
    inputs = [c.plain_input(c.values([1, anchors, 4], -1, 1), "FLOAT32"), c.plain_input(np.round(scores, 4), "FLOAT32"),
              c.plain_constant(table, "FLOAT32")]
    outputs = c.add("CUSTOM", inputs, ["FLOAT32"] * 4, custom=c.operator, custom_options=list(flexbuffer(fields)))
    for place in outputs:
        c.give(place, "FLOAT32")
