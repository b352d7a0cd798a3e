"""Operators that compute element by element, and those that normalise."""

from .case import ACTIVATIONS, generator


def unary(*names, modes, low=-3.0, high=3.0, options=None):
    @generator(*names, modes=modes)
    def fill(c):
        c.finish([c.input(c.shape(), low, high, batch=True)], options)


unary("ABS", modes="f32 q8 q16 i32", options=("AbsOptions", {}))
unary("NEG", modes="f32 i32 i64", options=("NegOptions", {}))
unary("SIN", "FLOOR", "CEIL", "ROUND", modes="f32")
unary("COS", modes="f32", options=("CosOptions", {}))
unary("EXP", modes="f32 q8 q16", options=("ExpOptions", {}))
unary("LOG", modes="f32 q8 q16", low=0.1)
unary("SQRT", modes="f32", low=0.0)
unary("RSQRT", modes="f32 q8 q16", low=0.2)
unary("SQUARE", modes="f32", options=("SquareOptions", {}))
unary("RELU", "RELU6", modes="f32 q8 qu8 q16", high=8.0)
unary("RELU_N1_TO_1", "RELU_0_TO_1", modes="f32 q8 qu8")
unary("ELU", modes="f32 q8")
unary("HARD_SWISH", modes="f32 q8 qu8", low=-5.0, high=5.0, options=("HardSwishOptions", {}))
unary("SIGN", modes="f32 f64 i32", options=("SignOptions", {}))
unary("ZEROS_LIKE", modes="f32 i32 i64", options=("ZerosLikeOptions", {}))


@generator("LOGICAL_NOT", modes="bool")
def logical_not(c):
    c.finish([c.input(c.shape())], ("LogicalNotOptions", {}))


FIXED = {"LOGISTIC": {"q8": (1 / 256, -128), "qu8": (1 / 256, 0), "q16": (1 / 32768, 0)},
         "TANH": {"q8": (1 / 128, 0), "qu8": (1 / 128, 128), "q16": (1 / 32768, 0)}}


@generator("LOGISTIC", "TANH", modes="f32 q8 qu8 q16")
def sigmoid(c):
    c.finish([c.input(c.shape(), -5, 5, batch=True)], scale=FIXED[c.operator].get(c.mode))


@generator("LEAKY_RELU", modes="f32 q8 qu8 q16")
def leaky_relu(c):
    c.finish([c.input(c.shape(), batch=True)], ("LeakyReluOptions", {"alpha": c.real(-0.2, 0.9)}))


@generator("GELU", modes="f32 q8 qu8")
def gelu(c):
    c.finish([c.input(c.shape(), batch=True)], ("GeluOptions", {"approximate": c.chance(0.5)}))


@generator("PRELU", modes="f32 q8 qu8")
def prelu(c):
    shape = c.shape(2)
    c.finish([c.input(shape), c.constant([*[1] * (len(shape) - 2), *shape[-1:]] if c.chance(0.7) else shape[1:], -0.5, 1)])


@generator("ADD", "SUB", modes="f32 i32 i64 q8 qu8 q16")
def add(c):
    shape, other = c.shape(), []
    other = shape if c.chance(0.5) else c.broadcast(shape)
    fields = {"fused_activation_function": c.pick(*ACTIVATIONS)}
    if c.mode == "q16":
        fields["pot_scale_int16"] = False
    c.finish([c.input(shape), c.operand(other)], (f"{c.operator.capitalize()}Options", fields))


@generator("MUL", modes="f32 i32 i64 q8 qu8 q16")
def multiply(c):
    shape = c.shape()
    c.finish([c.input(shape), c.operand(shape if c.chance(0.5) else c.broadcast(shape))],
             ("MulOptions", {"fused_activation_function": c.pick(*ACTIVATIONS)}))


@generator("DIV", modes="f32 i32 qu8")
def divide(c):
    shape = c.shape()
    c.finish([c.input(shape), c.operand(shape if c.chance(0.5) else c.broadcast(shape), 0.5, 3)],
             ("DivOptions", {"fused_activation_function": c.pick(*ACTIVATIONS)}))


@generator("MAXIMUM", "MINIMUM", modes="f32 i32 i64 q8 qu8 q16")
def extremum(c):
    shape = c.shape()
    scale = c.activation_scale(-3, 3) if c.quantized else None
    inputs = [c.input(shape, scale=scale), c.input(c.broadcast(shape), scale=scale)]
    c.finish(inputs, ("MaximumMinimumOptions", {}), like=inputs[0])


@generator("POW", modes="f32 i32")
def power(c):
    shape = c.shape()
    c.finish([c.input(shape, 0.1, 1), c.operand(c.broadcast(shape), 0, 2)], ("PowOptions", {}))


@generator("SQUARED_DIFFERENCE", modes="f32 i32 q8")
def squared_difference(c):
    shape = c.shape()
    c.finish([c.input(shape), c.operand(c.broadcast(shape))], ("SquaredDifferenceOptions", {}))


@generator("FLOOR_DIV", modes="f32 i32")
def floor_div(c):
    shape = c.shape()
    c.finish([c.input(shape, -9, 9), c.operand(c.broadcast(shape), 0.5, 3)], ("FloorDivOptions", {}))


@generator("FLOOR_MOD", modes="f32 i32 i64")
def floor_mod(c):
    shape = c.shape()
    c.finish([c.input(shape, -9, 9), c.operand(c.broadcast(shape), 0.5, 3)], ("FloorModOptions", {}))


@generator("ATAN2", modes="f32 f64")
def atan2(c):
    shape = c.shape()
    c.finish([c.input(shape), c.input(shape)], ("ATan2Options", {}))


COMPARISONS = {"EQUAL": "EqualOptions", "NOT_EQUAL": "NotEqualOptions", "LESS": "LessOptions", "LESS_EQUAL": "LessEqualOptions",
               "GREATER": "GreaterOptions", "GREATER_EQUAL": "GreaterEqualOptions"}


@generator(*COMPARISONS, modes="f32 i32 i64 q8 qu8")
def comparison(c):
    """Both sides have one scale: with two, it is rounding that says which of nearly equal numbers is the larger one."""
    shape = c.shape()
    scale = c.activation_scale(-3, 3) if c.quantized else None
    other = c.broadcast(shape)
    c.finish([c.input(shape, scale=scale), c.input(other, scale=scale) if c.chance(0.6) else c.constant(other)], (COMPARISONS[c.operator], {}), kinds=["BOOL"])


@generator("LOGICAL_AND", "LOGICAL_OR", modes="bool")
def logical(c):
    shape = c.shape()
    c.finish([c.input(shape), c.operand(c.broadcast(shape))], ("LogicalAndOptions" if c.operator == "LOGICAL_AND" else "LogicalOrOptions", {}))


@generator("BITWISE_XOR", modes="i8 i16 i32 u8 u16 u32")
def bitwise_xor(c):
    shape = c.shape()
    c.finish([c.input(shape), c.operand(c.broadcast(shape))], ("BitwiseXorOptions", {}))


@generator("RIGHT_SHIFT", modes="i8 i16 i32 u8 u16 u32")
def right_shift(c):
    shape = c.shape()
    c.finish([c.input(shape), c.plain_constant(c.integers(c.broadcast(shape), 0, 6), c.kind)], ("RightShiftOptions", {}))


@generator("ADD_N", modes="f32 i32")
def add_n(c):
    shape = c.shape()
    c.finish([c.input(shape) for _ in range(c.integer(2, 4))], ("AddNOptions", {}))


@generator("SELECT", modes="f32 i32 i64 bool q8 qu8 q16")
def select(c):
    shape = [*c.shape(1, 3), 2]  # LiteRT makes scalars of single elements
    condition = c.plain_input(c.rng.integers(0, 2, shape if c.chance(0.6) else shape[:1]), "BOOL")
    scale = c.activation_scale(-3, 3) if c.quantized else None
    branches = [c.input(shape, scale=scale), c.input(shape, scale=scale)]
    c.finish([condition, *branches], ("SelectOptions", {}), like=branches[0])


@generator("SELECT_V2", modes="f32 i32 i64 bool q8 qu8 q16")
def select_v2(c):
    shape = [*c.shape(1, 3), 2]
    condition = c.plain_input(c.rng.integers(0, 2, c.broadcast(shape)), "BOOL")
    scale = c.activation_scale(-3, 3) if c.quantized else None
    branches = [c.input(shape, scale=scale), c.input(c.broadcast(shape), scale=scale)]
    c.finish([condition, *branches], ("SelectV2Options", {}), like=branches[0])


@generator("WHERE", modes="bool f32 i32")
def where(c):
    values = c.rng.integers(0, 2, c.shape())
    c.finish([c.plain_input(values, c.kind)], ("WhereOptions", {}), kinds=["INT64"])


@generator("BUCKETIZE", modes="f32 f64 i32 i64")
def bucketize(c):
    boundaries = sorted({c.real(-3, 3) for _ in range(c.integer(1, 5))})
    c.finish([c.input(c.shape())], ("BucketizeOptions", {"boundaries": boundaries}), kinds=["INT32"])


@generator("CAST", modes="f32 f64 i8 i16 i32 i64 u8 u32 bool")
def cast(c):
    kind = c.pick("FLOAT32", "INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL", "FLOAT64", "FLOAT16")
    low = 0 if kind.startswith("U") else -3
    c.finish([c.input(c.shape(), low)], ("CastOptions", {"in_data_type": c.kind, "out_data_type": kind}), kinds=[kind])


@generator("QUANTIZE", modes="q8 qu8 q16", measured=False)
def quantize(c):
    """From floats, or from other integers."""
    shape, wanted = c.shape(), c.mode
    fit = c.real(0.6, 1.5)
    scale = c.activation_scale(-3 * fit, 3 * fit)
    source = c.pick("f32", "q8", "qu8", "q16") if wanted != "q16" else c.pick("f32", "q8", "q16")
    if source == "f32":
        place = c.plain_input(c.values(shape), "FLOAT32", batch=True)
    else:
        c.mode = source
        place = c.input(shape)
        c.mode = wanted
    c.finish([place], ("QuantizeOptions", {}), scale=scale)


@generator("DEQUANTIZE", modes="q8 qu8 q16 f16", measured=False)
def dequantize(c):
    if c.mode == "f16":
        place = c.plain_constant(c.values(c.shape()), "FLOAT16")
    else:
        place = c.input(c.shape(), batch=True)
    c.finish([place], ("DequantizeOptions", {}), kinds=["FLOAT32"])


@generator("FAKE_QUANT", modes="f32")
def fake_quant(c):
    fields = {"min": c.real(-3, -0.5), "max": c.real(0.5, 3), "num_bits": c.pick(4, 8, 8, 16), "narrow_range": c.chance(0.3)}
    c.finish([c.input(c.shape())], ("FakeQuantOptions", fields))


@generator("BITCAST", modes="f32 i32 u32 i8 i16")
def bitcast(c):
    """To a type of the same size: what LiteRT and every format agree on."""
    kind = {"f32": "INT32", "i32": "FLOAT32", "u32": "INT32", "i8": "UINT8", "i16": "UINT16"}[c.mode]
    if kind == "FLOAT32":
        place = c.plain_input(c.integers(c.shape(), 0x3F000000, 0x40400000), "INT32")
    else:
        place = c.input(c.shape())
    c.finish([place], ("BitcastOptions", {}), kinds=[kind])


@generator("SOFTMAX", modes="f32 q8 qu8 q16")
def softmax(c):
    scale = {"q8": (1 / 256, -128), "qu8": (1 / 256, 0), "q16": (1 / 32768, 0)}.get(c.mode)
    beta = 1.0 if c.chance(0.7) else c.real(0.3, 2)
    c.finish([c.input(c.shape(1, 4), -5, 5, batch=True)], ("SoftmaxOptions", {"beta": beta}), scale=scale)


@generator("LOG_SOFTMAX", modes="f32 q8 qu8")
def log_softmax(c):
    scale = {"q8": (16 / 256, 127), "qu8": (16 / 256, 255)}.get(c.mode)
    c.finish([c.input(c.shape(1, 4), -5, 5, batch=True)], ("LogSoftmaxOptions", {}), scale=scale)


@generator("L2_NORMALIZATION", modes="f32 q8 qu8")
def l2_normalization(c):
    scale = {"q8": (1 / 128, 0), "qu8": (1 / 128, 128)}.get(c.mode)
    c.finish([c.input(c.shape(1, 4), batch=True)], ("L2NormOptions", {}), scale=scale)


@generator("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(c):
    fields = {"radius": c.integer(1, 4), "bias": c.real(0.5, 2), "alpha": c.real(0.1, 1), "beta": c.real(0.3, 1)}
    c.finish([c.input(c.shape(4, 4))], ("LocalResponseNormalizationOptions", fields))
