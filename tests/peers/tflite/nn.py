"""Convolutions, products, pools, recurrent layers and what detectors end with."""

import numpy as np

from .case import ACTIVATIONS, HYBRID, generator

NOTHING = -1  # an input that is left out


def window(c, dilated=True):
    """Options of a window, [height, width] of the kernel, and [height, width] of an image that it fits."""
    kernel = [c.integer(1, 3), c.integer(1, 3)]
    strides = [c.integer(1, 2), c.integer(1, 2)]
    dilations = [c.integer(1, 2) if dilated and c.chance(0.4) else 1 for _ in kernel]
    image = [max(c.integer(2, 7), (k - 1) * d + 1) for k, d in zip(kernel, dilations)]
    fields = {"padding": c.pick("SAME", "VALID"), "stride_h": strides[0], "stride_w": strides[1],
              "fused_activation_function": c.pick(*ACTIVATIONS)}
    if dilated:
        fields |= {"dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1]}
    return fields, kernel, image


WEIGHTED = "f32 q8 qu8 q16 q8w4 hybrid hybrid4 f16w"


@generator("CONV_2D", modes=WEIGHTED)
def conv(c):
    fields, kernel, image = window(c)
    groups = c.pick(1, 1, 1, 2) if c.mode in ("f32", "q8") else 1
    channels, filters = groups * c.integer(1, 4), groups * c.integer(1, 5)
    x = c.input([c.integer(1, 2), *image, channels], batch=True)
    w = c.weights([filters, *kernel, channels // groups], 0)
    c.finish([x, w, c.bias(filters, x, w)], ("Conv2DOptions", fields))


@generator("DEPTHWISE_CONV_2D", modes="f32 q8 qu8 q16 q8w4 hybrid f16w")
def depthwise(c):
    fields, kernel, image = window(c)
    channels, multiplier = c.integer(1, 5), c.integer(1, 2)
    x = c.input([c.integer(1, 2), *image, channels], batch=True)
    w = c.weights([1, *kernel, channels * multiplier], 3)
    c.finish([x, w, c.bias(channels * multiplier, x, w)], ("DepthwiseConv2DOptions", fields | {"depth_multiplier": multiplier}))


@generator("TRANSPOSE_CONV", modes="f32 q8 qu8 q16")
def transpose_conv(c):
    kernel, strides, image = [c.integer(1, 3), c.integer(1, 3)], [c.integer(1, 2), c.integer(1, 2)], [c.integer(1, 4), c.integer(1, 4)]
    padding = c.pick("SAME", "VALID")
    size = [i * s if padding == "SAME" else (i - 1) * s + max(k, s) for i, s, k in zip(image, strides, kernel)]
    batch, channels, filters = c.integer(1, 2), c.integer(1, 3), c.integer(1, 3)
    fields = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    shape = c.ints([batch, *size, filters])
    w = c.weights([filters, *kernel, channels], 0)
    x = c.input([batch, *image, channels])
    inputs = [shape, w, x] + ([c.bias(filters, x, w)] if c.chance(0.6) else [])
    c.finish(inputs, ("TransposeConvOptions", fields))


@generator("CONV_3D")
def conv_3d(c):
    fields = {"padding": c.pick("SAME", "VALID"), "stride_d": c.integer(1, 2), "stride_h": c.integer(1, 2), "stride_w": c.integer(1, 2),
              "dilation_d_factor": 1, "dilation_h_factor": 1, "dilation_w_factor": 1, "fused_activation_function": c.pick(*ACTIVATIONS)}
    channels, filters = c.integer(1, 3), c.integer(1, 3)
    kernel = [c.integer(1, 2) for _ in range(3)]
    x = c.input([c.integer(1, 2), *(c.integer(2, 4) for _ in kernel), channels])
    inputs = [x, c.constant([*kernel, channels, filters])] + ([c.constant([filters])] if c.chance(0.6) else [])
    c.finish(inputs, ("Conv3DOptions", fields))


@generator("CONV_3D_TRANSPOSE")
def conv_3d_transpose(c):
    kernel, strides, image = ([c.integer(1, n) for _ in range(3)] for n in (2, 2, 3))
    padding = c.pick("SAME", "VALID")
    size = [i * s if padding == "SAME" else (i - 1) * s + max(k, s) for i, s, k in zip(image, strides, kernel)]
    fields = {"padding": padding, "dilation_d_factor": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    fields |= {f"stride_{axis}": s for axis, s in zip("dhw", strides)}
    channels, filters = c.integer(1, 3), c.integer(1, 3)
    inputs = [c.ints([1, *size, filters], constant=1), c.constant([*kernel, filters, channels]), c.input([1, *image, channels])]
    c.finish(inputs + ([c.constant([filters])] if c.chance(0.5) else []), ("Conv3DOptions", fields))


@generator("FULLY_CONNECTED", modes=WEIGHTED)
def fully_connected(c):
    depth, units = c.integer(1, 8), c.integer(1, 6)
    shape = [*c.shape(1, 2, 3), depth]
    fields = {"fused_activation_function": c.pick(*ACTIVATIONS), "keep_num_dims": c.chance(0.5)}
    if c.mode in HYBRID:
        fields["asymmetric_quantize_inputs"] = c.chance(0.5)
    x = c.input(shape)
    w = c.weights([units, depth], 0)
    inputs = [x, w, c.bias(units, x, w) if c.chance(0.7) else NOTHING]
    c.finish(inputs, ("FullyConnectedOptions", fields))


@generator("BATCH_MATMUL", modes="f32 q8 q16")
def batch_matmul(c):
    rows, depth, columns = c.integer(1, 4), c.integer(1, 5), c.integer(1, 4)
    adjoint = [c.chance(0.4), c.chance(0.4)]
    batch = c.shape(0, 2, 3)
    left = [depth, rows] if adjoint[0] else [rows, depth]
    right = [columns, depth] if adjoint[1] else [depth, columns]
    b = [*(c.broadcast(batch) if c.chance(0.3) else batch), *right]
    c.finish([c.input([*batch, *left]), c.input(b) if c.chance(0.6) or c.mode == "q16" else c.constant(b)],
             ("BatchMatMulOptions", {"adj_x": adjoint[0], "adj_y": adjoint[1]}))


@generator("AVERAGE_POOL_2D", "MAX_POOL_2D", modes="f32 q8 qu8 q16")
@generator("L2_POOL_2D")
def pool(c):
    fields, kernel, image = window(c, dilated=False)
    x = c.input([c.integer(1, 2), *image, c.integer(1, 4)], batch=True)
    c.finish([x], ("Pool2DOptions", fields | {"filter_height": kernel[0], "filter_width": kernel[1]}), like=x)


@generator("SVDF", modes="f32 hybrid")
def svdf(c):
    batch, depth, units, rank, memory = c.integer(1, 2), c.integer(1, 4), c.integer(1, 3), c.integer(1, 2), c.integer(2, 4)
    filters = units * rank
    x = c.input([batch, depth])
    inputs = [x, c.weights([filters, depth], per_channel=False), c.weights([filters, memory], per_channel=False),
              c.plain_constant(c.values([units]), "FLOAT32") if c.chance(0.6) else NOTHING, c.variable([batch, memory * filters], "FLOAT32")]
    c.finish(inputs, ("SVDFOptions", {"rank": rank, "fused_activation_function": c.pick("NONE", "RELU")}))


@generator("RNN", modes="f32 hybrid")
@generator("UNIDIRECTIONAL_SEQUENCE_RNN", modes="f32 hybrid")
def rnn(c):
    batch, depth, units, steps = c.integer(1, 2), c.integer(1, 4), c.integer(1, 4), c.integer(1, 4)
    fields = {"fused_activation_function": c.pick("TANH", "RELU", "NONE")}
    if c.operator == "RNN":
        table, shape = "RNNOptions", [batch, depth]
    else:
        table = "SequenceRNNOptions"
        fields["time_major"] = c.chance(0.5)
        shape = [steps, batch, depth] if fields["time_major"] else [batch, steps, depth]
    inputs = [c.input(shape), c.weights([units, depth], per_channel=False), c.weights([units, units], low=-0.5, high=0.5, per_channel=False),
              c.plain_constant(c.values([units]), "FLOAT32"), c.variable([batch, units], "FLOAT32")]
    c.finish(inputs, (table, fields))


@generator("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(c):
    batch, depth, units, steps = c.integer(1, 2), c.integer(1, 3), c.integer(1, 3), c.integer(1, 4)
    merge, time_major = c.chance(0.5), c.chance(0.5)
    inputs = [c.input([steps, batch, depth] if time_major else [batch, steps, depth])]
    for _ in range(2):
        inputs += [c.constant([units, depth], -1, 1), c.constant([units, units], -0.5, 0.5), c.constant([units], -1, 1),
                   c.variable([batch, units], "FLOAT32")]
    fields = {"time_major": time_major, "merge_outputs": merge, "fused_activation_function": c.pick("TANH", "RELU")}
    c.finish(inputs + [NOTHING] * 3, ("BidirectionalSequenceRNNOptions", fields), outputs=1 if merge else 2)


def lstm_weights(c, depth, units, width, cifg, peephole, projection):
    """Inputs 1 to 17 of a cell: weights of inputs and of the state, peepholes, biases, projection."""
    make = lambda shape: c.weights(shape, low=-0.6, high=0.6, per_channel=False)  # noqa: E731
    plain = lambda shape: c.plain_constant(c.values(shape, -0.6, 0.6), "FLOAT32")  # noqa: E731
    gates = [NOTHING if cifg and gate == 0 else make([units, depth]) for gate in range(4)]
    gates += [NOTHING if cifg and gate == 0 else make([units, width]) for gate in range(4)]
    gates += [plain([units]) if peephole and not (cifg and gate == 0) else NOTHING for gate in range(3)]
    gates += [NOTHING if cifg and gate == 0 else plain([units]) for gate in range(4)]
    return gates + ([make([width, units]), plain([width]) if c.chance(0.5) else NOTHING] if projection else [NOTHING, NOTHING])


def lstm_shape(c):
    units = c.integer(1, 4)
    projection = c.chance(0.3)
    forms = {"cifg": c.chance(0.3), "peephole": c.mode == "f32" and c.chance(0.3), "projection": projection}
    return c.integer(1, 2), c.integer(1, 4), units, c.integer(1, 3) if projection else units, forms


def basic_lstm(c):
    """The other kernel of LSTM: states are inputs and outputs, and so is what it computes with."""
    batch, depth, units = c.integer(1, 2), c.integer(1, 4), c.integer(1, 4)
    inputs = [c.input([batch, depth]), c.input([batch, units], -1, 1), c.constant([4 * units, depth + units], -1, 1),
              c.constant([4 * units], -1, 1), c.input([batch, units], -1, 1)]
    return c.finish(inputs, ("LSTMOptions", {"fused_activation_function": "TANH", "kernel_type": "BASIC"}), outputs=4)


@generator("LSTM", modes="f32 hybrid")
@generator("UNIDIRECTIONAL_SEQUENCE_LSTM", modes="f32 hybrid")
def lstm(c):
    if c.operator == "LSTM" and c.mode == "f32" and c.chance(0.2):
        return basic_lstm(c)
    batch, depth, units, width, forms = lstm_shape(c)
    fields = {"fused_activation_function": "TANH", "cell_clip": c.pick(0.0, 0.0, 0.4), "proj_clip": c.pick(0.0, 0.5) if forms["projection"] else 0.0}
    if c.operator == "LSTM":
        table, shape = "LSTMOptions", [batch, depth]
    else:
        table, steps = "UnidirectionalSequenceLSTMOptions", c.integer(1, 4)
        fields["time_major"] = c.chance(0.5)
        shape = [steps, batch, depth] if fields["time_major"] else [batch, steps, depth]
    inputs = [c.input(shape), *lstm_weights(c, depth, units, width, **forms)]
    inputs += [c.variable([batch, width], "FLOAT32"), c.variable([batch, units], "FLOAT32")]
    if c.chance(0.2):  # normalised gates
        first = 1 if forms["cifg"] else 0
        inputs += [NOTHING] * first + [c.plain_constant(c.values([units], 0.5, 1), "FLOAT32") for _ in range(4 - first)]
    c.finish(inputs, (table, fields))


@generator("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(c):
    batch, depth, units, width, forms = lstm_shape(c)
    steps, merge, time_major = c.integer(1, 4), c.chance(0.5), c.chance(0.5)
    if merge and not time_major:
        batch = 1  # of more LiteRT finds the states at strides of both outputs, behind their ends
    inputs = [c.input([steps, batch, depth] if time_major else [batch, steps, depth])]
    for _ in range(2):
        inputs += lstm_weights(c, depth, units, width, **forms)
    for _ in range(2):
        inputs += [c.variable([batch, width], "FLOAT32"), c.variable([batch, units], "FLOAT32")]
    fields = {"fused_activation_function": "TANH", "time_major": time_major, "merge_outputs": merge, "cell_clip": c.pick(0.0, 0.4)}
    c.finish(inputs + [NOTHING] * 9, ("BidirectionalSequenceLSTMOptions", fields), outputs=1 if merge else 2)


@generator("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(c):
    count = c.integer(1, 10)
    corner = c.values([count, 2], 0, 1)
    boxes = np.concatenate([corner, corner + c.values([count, 2], 0.1, 0.6)], 1)
    scores = c.rng.permutation(count) / count + 0.01
    soft = c.operator.endswith("5")
    scalars = [c.plain_constant(c.real(0.2, 0.7), "FLOAT32"), c.plain_constant(c.real(0, 0.4), "FLOAT32")]
    if soft:
        scalars.append(c.plain_constant(c.pick(0.0, 0.5), "FLOAT32"))
    most = c.plain_constant(c.integer(1, count), "INT32")
    table = "NonMaxSuppressionV5Options" if soft else "NonMaxSuppressionV4Options"
    kinds = ["INT32", "FLOAT32", "INT32"] if soft else ["INT32", "INT32"]
    c.finish([c.plain_input(boxes, "FLOAT32"), c.plain_input(scores, "FLOAT32"), most, *scalars], (table, {}), kinds=kinds)


@generator("RFFT2D")
def rfft_2d(c):
    """The real and the imaginary part: models have no complex outputs."""
    size = [2 ** c.integer(0, 3), 2 ** c.integer(1, 3)]
    x = c.input([*c.shape(0, 1, 2), *(d + c.integer(-1, 1) if d > 1 else d for d in size)])
    spectrum = c.add("RFFT2D", [x, c.ints(size, constant=1)], ["COMPLEX64"], ("Rfft2dOptions", {}))
    for part in ("REAL", "IMAG"):
        c.give(c.add(part, spectrum, ["FLOAT32"])[0], "FLOAT32")


@generator("REAL", "IMAG", "COMPLEX_ABS")
def complex_part(c):
    size = 2 ** c.integer(2, 4)  # of two points the imaginary part is 0, and what is there instead rounding alone
    spectrum = c.add("RFFT2D", [c.input([1, size]), c.ints([1, size], constant=1)], ["COMPLEX64"], ("Rfft2dOptions", {}))
    c.finish(spectrum)
