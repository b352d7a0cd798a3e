"""Small TensorFlow Lite models as plain Python values, their bytes (made by flatc), and .npy files. Needs the standard library alone.

A model is {"subgraphs": [...], "signatures": [...]}, a subgraph {"tensors": [...], "operators": [...], "inputs": [...], "outputs": [...]}
with places of tensors. A tensor is {"name", "type", "shape"} and, where it has them, "signature" (shape_signature), "scale", "zero_point",
"axis", "details" (quantization), "values" (a constant, flat), "variable", "sparsity". An operator is {"operator", "inputs", "outputs"}
and maybe "version", "options" ([table, fields]), "options_2", "custom" (the name of a custom operator) and "custom_options" (its bytes, as numbers).
"""

import ast
import json
import pathlib
import struct
import subprocess

SCHEMA = pathlib.Path(__file__).resolve().parents[3] / "services" / "importer" / "tflite" / "schema.fbs"

# Types of the format: struct's letter and numpy's name.
TYPES = {"FLOAT32": ("f", "<f4"), "FLOAT16": ("e", "<f2"), "FLOAT64": ("d", "<f8"), "INT8": ("b", "|i1"), "INT16": ("h", "<i2"),
         "INT32": ("i", "<i4"), "INT64": ("q", "<i8"), "UINT8": ("B", "|u1"), "UINT16": ("H", "<u2"), "UINT32": ("I", "<u4"),
         "UINT64": ("Q", "<u8"), "BOOL": ("?", "|b1")}
FLOATS = ("FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16")
COMPLEX_PARTS = {"COMPLEX64": "f", "COMPLEX128": "d"}
LAST_OF_ONE_BYTE = 127  # the largest number of an operator that fits the field of old files


def pack(values, kind):
    """The bytes of a constant."""
    if kind in ("INT4", "UINT4"):  # two in a byte, the first in its low half
        halves = [v & 15 for v in values] + [0] * (len(values) % 2)
        return bytes(low | high << 4 for low, high in zip(halves[::2], halves[1::2]))
    if kind == "INT2":
        quarters = [v & 3 for v in values] + [0] * (-len(values) % 4)
        return bytes(a | b << 2 | c << 4 | d << 6 for a, b, c, d in zip(*(quarters[i::4] for i in range(4))))
    if kind == "BFLOAT16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{TYPES[kind][0]}", *values)


def quantization(tensor):
    fields = {"scale": tensor.get("scale"), "zero_point": tensor.get("zero_point"), "quantized_dimension": tensor.get("axis")}
    if "details" in tensor:
        fields["details_type"], fields["details"] = tensor["details"]
    return {k: v for k, v in fields.items() if v is not None}


def with_options(fields, name, options):
    if options:
        fields[f"{name}_type"], fields[name] = options


def to_json(model):
    """The model as flatc reads it."""
    buffers, codes = [{}], []

    def tensor(t):
        fields = {"name": t["name"], "type": t["type"], "shape": t["shape"], "has_rank": True}
        if "values" in t:
            fields["buffer"] = len(buffers)
            buffers.append({"data": list(pack(t["values"], t["type"]))})
        if "signature" in t:
            fields["shape_signature"] = t["signature"]
        if quantization(t):
            fields["quantization"] = quantization(t)
        if t.get("variable"):
            fields["is_variable"] = True
        if "sparsity" in t:
            fields["sparsity"] = t["sparsity"]
        return fields

    def code(operator):
        key = (operator["operator"], operator.get("version", 1), operator.get("custom"))
        if key not in codes:
            codes.append(key)
        return codes.index(key)

    def node(o):
        fields = {"opcode_index": code(o), "inputs": o["inputs"], "outputs": o["outputs"]}
        with_options(fields, "builtin_options", o.get("options"))
        with_options(fields, "builtin_options_2", o.get("options_2"))
        if "custom_options" in o:
            fields["custom_options"] = o["custom_options"]
        if "intermediates" in o:
            fields["intermediates"] = o["intermediates"]
        return fields

    graphs = [{"name": g.get("name", ""), "tensors": [tensor(t) for t in g["tensors"]], "inputs": g["inputs"], "outputs": g["outputs"],
               "operators": [node(o) for o in g["operators"]]} for g in model["subgraphs"]]
    operator_codes = [{"builtin_code": name, "version": version, "deprecated_builtin_code": min(number(name), LAST_OF_ONE_BYTE)} |
                      ({"custom_code": custom} if custom else {}) for name, version, custom in codes]
    return {"version": 3, "description": "quench", "operator_codes": operator_codes, "subgraphs": graphs, "buffers": buffers,
            "signature_defs": [signature(s) for s in model.get("signatures", [])]}


def signature(s):
    def maps(entries):
        return [{"name": name, "tensor_index": place} for name, place in entries.items()]

    return {"signature_key": s["name"], "inputs": maps(s["inputs"]), "outputs": maps(s["outputs"]), "subgraph_index": s.get("subgraph", 0)}


def builtins():
    """Name -> number of every builtin operator of the schema."""
    if not builtins.numbers:
        body = SCHEMA.read_text().split("enum BuiltinOperator", 1)[1].split("{", 1)[1].split("}", 1)[0]
        builtins.numbers.update((name.strip(), int(value)) for name, value in (row.split("=") for row in body.split(",")))
    return builtins.numbers


builtins.numbers = {}


def number(operator):
    return builtins()[operator]


def write_models(flatc, models):
    """Writes {path of a .tflite file: model}, with one call of flatc for each folder."""
    folders = {}
    for path, model in models.items():
        text = path.with_suffix(".json")
        text.write_text(json.dumps(to_json(model)))
        folders.setdefault(path.parent, []).append(text)
    for folder, texts in folders.items():
        command = [flatc, "--binary", "--allow-non-utf8", "-o", f"{folder}/", SCHEMA, *texts]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ValueError(f"flatc refuses a model: {made.stdout}{made.stderr}")
        for text in texts:
            text.unlink()


def write_npy(path, values, shape, kind):
    header = repr({"descr": TYPES[kind][1], "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    body = struct.pack(f"<{len(values)}{TYPES[kind][0]}", *values)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + body)


def read_npy(data):
    """(values, shape, type) of the bytes of a .npy file."""
    if data[:6] != b"\x93NUMPY":
        raise ValueError("this is no .npy file")
    width = 2 if data[6] == 1 else 4
    begin = 8 + width + int.from_bytes(data[8:8 + width], "little")
    header = ast.literal_eval(data[8 + width:begin].decode())
    kind = next((k for k, (_, name) in TYPES.items() if name.strip("<|") == header["descr"].strip("<|")), None)
    if kind is None or header["fortran_order"]:
        raise ValueError(f"the array holds {header['descr']}, fortran_order {header['fortran_order']}")
    letter = TYPES[kind][0]
    count = (len(data) - begin) // struct.calcsize(letter)
    return list(struct.unpack(f"<{count}{letter}", data[begin:begin + count * struct.calcsize(letter)])), list(header["shape"]), kind
