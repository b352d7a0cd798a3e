"""A small ONNX model and samples for it, written without any package: two dense layers, whose weights follow from a seed."""

import random
import struct

INNER, OUTER = 1024, 1280


def field(number, payload):
    """A protobuf field: bytes and text length-delimited, integers as varints."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    if isinstance(payload, str):
        payload = payload.encode()
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value):
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes(data) + bytes([value])


# Numbers of fields: onnx.proto, ModelProto and what it holds. 1 is FLOAT.

def value_info(name, dims):
    shape = b"".join(field(1, field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def tensor(name, dims, generator):
    count = dims[0] * dims[1]
    # 16 random bits for each: as good as any, and quick.
    bits = struct.unpack(f"<{count}H", generator.randbytes(2 * count))
    data = struct.pack(f"<{count}f", *((value - 32768) / 1048576 for value in bits))
    return b"".join(field(1, dim) for dim in dims) + field(2, 1) + field(8, name) + field(9, data)


def node(op, inputs, output):
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, output) + field(4, op)


def write_model(path, seed):
    generator = random.Random(seed)
    graph = field(1, node("MatMul", ["x", "w1"], "h")) + field(1, node("Relu", ["h"], "r")) + field(1, node("MatMul", ["r", "w2"], "y"))
    graph += field(2, "layers")
    graph += field(5, tensor("w1", (INNER, OUTER), generator)) + field(5, tensor("w2", (OUTER, 16), generator))
    graph += field(11, value_info("x", (1, INNER))) + field(12, value_info("y", (1, 16)))
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 17)))


def write_samples(path, count):
    """`count` inputs of such a model, stacked in an .npy."""
    generator = random.Random(count)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {INNER}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    values = [generator.uniform(-1, 1) for _ in range(count * INNER)]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values))
