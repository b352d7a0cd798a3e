"""GPT-2 and recurrent networks."""

import math

import numpy as np
from onnx import TensorProto

from net import Net


def gpt2(layers=4):
    """As the exporters write it: Conv1D as Gemm between reshapes, a Split into heads, a sliced triangle as mask. Batch and sequence symbolic."""
    layers, width, heads, vocabulary, places = (2, 48, 4, 100, 64) if Net.side else (layers, 768, 12, 50257, 1024)
    n = Net("gpt2", [("input_ids", TensorProto.INT64, ["batch", "seq"])])
    zero = n.constant(np.array(0, np.int64))
    shape = n.op("Shape", "input_ids")
    length = n.op("Gather", shape, n.constant(np.array(1, np.int64)), axis=0)
    words = n.constant((np.random.default_rng(7).standard_normal((vocabulary, width)) * 0.1).astype(np.float32))
    positions = n.constant((np.random.default_rng(8).standard_normal((places, width)) * 0.1).astype(np.float32))
    order = n.op("Unsqueeze", n.op("Range", zero, length, n.constant(np.array(1, np.int64))), n.ints(0))
    x = n.op("Add", n.op("Gather", words, "input_ids"), n.op("Gather", positions, order))
    triangle = n.constant(np.tril(np.ones((1, 1, places, places), np.bool_)))

    def conv1d(y, c_in, c_out):
        flat = n.op("Reshape", y, n.ints(-1, c_in))
        flat = n.op("Gemm", flat, n.weight((c_in, c_out), 2 * c_in, summed=0), n.vector(c_out, -0.1, 0.1))
        batch = [n.op("Unsqueeze", n.op("Gather", n.op("Shape", y), n.constant(np.array(i, np.int64)), axis=0), n.ints(0)) for i in (0, 1)]
        return n.op("Reshape", flat, n.op("Concat", *batch, n.ints(c_out), axis=0))

    def attention(y):
        q, k, v = n.ops("Split", 3, conv1d(y, width, 3 * width), n.ints(width, width, width), axis=2)
        q, k, v = (n.op("Reshape", p, n.ints(0, 0, heads, width // heads)) for p in (q, k, v))
        q, v = (n.op("Transpose", p, perm=[0, 2, 1, 3]) for p in (q, v))
        scores = n.op("Div", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 2, 3, 1])), n.constant(np.float32(math.sqrt(width // heads))))
        end = n.op("Unsqueeze", length, n.ints(0))
        mask = n.op("Slice", n.op("Slice", triangle, n.ints(0), end, n.ints(2)), n.ints(0), end, n.ints(3))
        scores = n.op("Where", mask, scores, n.constant(np.float32(np.finfo(np.float32).min)))
        mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return conv1d(n.op("Reshape", mixed, n.ints(0, 0, width)), width, width)

    def gelu(y):
        cube = n.op("Mul", n.op("Pow", y, n.constant(np.float32(3))), n.constant(np.float32(0.044715)))
        t = n.op("Tanh", n.op("Mul", n.op("Add", y, cube), n.constant(np.float32(math.sqrt(2 / math.pi)))))
        return n.op("Mul", n.op("Mul", y, n.constant(np.float32(0.5))), n.op("Add", t, n.constant(np.float32(1))))

    for _ in range(layers):
        x = n.op("Add", x, attention(n.norm(x, width)))
        x = n.op("Add", x, conv1d(gelu(conv1d(n.norm(x, width), width, 4 * width)), 4 * width, width))
    return n.model(n.op("MatMul", n.norm(x, width), n.op("Transpose", words, perm=[1, 0])))


def recurrent(n, op, gates, x, width, hidden, lengths, states, **attributes):
    """One bidirectional layer of PyTorch's: [seq, batch, width] -> [seq, batch, 2 hidden]."""
    def weight(*shape):
        rng = np.random.default_rng(len(n.constants))
        return n.constant(rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(math.sqrt(hidden)))

    inputs = [x, weight(2, gates * hidden, width), weight(2, gates * hidden, hidden), weight(2, 2 * gates * hidden), lengths, *states]
    outputs = n.ops(op, 1 + len(states), *inputs, hidden_size=hidden, direction="bidirectional", **attributes)
    y = n.op("Reshape", n.op("Transpose", outputs[0], perm=[0, 2, 1, 3]), n.ints(0, 0, -1))
    return y, outputs[1:]


def recurrent_net(name, op, gates, count, **attributes):
    """Two bidirectional layers on padded sequences with lengths, initial states from outside (the first) and of zeros (the second)."""
    width, hidden, length = (8, 6, 7) if Net.side else (64, 128, 50)
    states = [("h0", TensorProto.FLOAT, [2, "batch", hidden]), ("c0", TensorProto.FLOAT, [2, "batch", hidden])][:count]
    n = Net(name, [("x", TensorProto.FLOAT, ["batch", length, width]), ("lengths", TensorProto.INT32, ["batch"])] + states)
    x = n.op("Transpose", "x", perm=[1, 0, 2])
    x, last = recurrent(n, op, gates, x, width, hidden, "lengths", [s[0] for s in states], **attributes)
    batch = n.op("Unsqueeze", n.op("Gather", n.op("Shape", x), n.constant(np.array(1, np.int64)), axis=0), n.ints(0))
    zeros = n.op("Expand", n.constant(np.zeros((2, 1, hidden), np.float32)), n.op("Concat", n.ints(2), batch, n.ints(hidden), axis=0))
    x, _ = recurrent(n, op, gates, x, 2 * hidden, hidden, "lengths", [zeros] * count, **attributes)
    scores = n.linear(n.op("Transpose", x, perm=[1, 0, 2]), 2 * hidden, 10)
    return n.model(n.op("LogSoftmax", scores, axis=-1), *last)


def lstm_net():
    return recurrent_net("lstm_net", "LSTM", 4, 2)


def gru_net():
    return recurrent_net("gru_net", "GRU", 3, 1, linear_before_reset=1)


def lstm_net_tf():
    """As tf2onnx writes Keras: transposes around, one direction, zero states of the batch's size, the last output to a Dense layer."""
    width, hidden, length = (8, 6, 7) if Net.side else (32, 64, 40)
    n = Net("lstm_net_tf", [("x:0", TensorProto.FLOAT, ["unk__0", length, width])])

    def weight(*shape):
        rng = np.random.default_rng(len(n.constants))
        return n.constant(rng.uniform(-0.3, 0.3, shape).astype(np.float32))

    x, c = "x:0", width
    for i in range(2):
        x = n.op("Transpose", x, perm=[1, 0, 2])
        batch = n.op("Slice", n.op("Cast", n.op("Shape", x), to=TensorProto.INT32), n.ints(1), n.ints(2), n.ints(0))
        shape = n.op("Concat", n.ints(1), n.op("Cast", batch, to=TensorProto.INT64), n.ints(hidden), axis=0)
        state = n.op("ConstantOfShape", shape)
        y, last, _ = n.ops("LSTM", 3, x, weight(1, 4 * hidden, c), weight(1, 4 * hidden, hidden), weight(1, 8 * hidden), "", state, state,
                           hidden_size=hidden, direction="forward")
        x, c = n.op("Transpose", n.op("Squeeze", y, n.ints(1)), perm=[1, 0, 2]), hidden
    x = n.op("Squeeze", last, n.ints(0))
    return n.model(n.op("Softmax", n.op("Add", n.op("MatMul", x, weight(hidden, 5)), weight(5)), axis=-1))
