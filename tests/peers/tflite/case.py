"""One random case: a model of one operator or a few, and what it is run on. Everything follows from the seed's text."""

import zlib

import numpy as np

GENERATORS = {}  # operator -> (function that fills a Case, modes, whether a float model says what ranges its outputs have)

# Types that the operator computes in. q8, qu8 and q16 are quantized activations (q16 with 8-bit weights), hybrid is float with 8-bit weights:
# there LiteRT rounds activations to 8 bits and quench does not, so that LiteRT's float kernel with the same weights says what is right;
# f16w float with 16-bit weights, q8w4 and hybrid4 are q8 and hybrid with weights of four bits; the others say the type of plain tensors.
MODES = {"f32": "FLOAT32", "f64": "FLOAT64", "f16": "FLOAT16", "q8": "INT8", "qu8": "UINT8", "q16": "INT16", "q8w4": "INT8",
         "hybrid": "FLOAT32", "hybrid4": "FLOAT32", "f16w": "FLOAT32", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32",
         "bool": "BOOL"}
QUANTIZED = ("q8", "qu8", "q16", "q8w4")
HYBRID = ("hybrid", "hybrid4")
NUMPY = {"FLOAT32": np.float32, "FLOAT64": np.float64, "FLOAT16": np.float16, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
         "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_}
SMALL_INTEGERS = 20
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def generator(*names, modes="f32", measured=True):
    """Registers the function as the one that draws cases of the operators `names`, each in these modes. A case that is not `measured` says
    itself how its outputs are quantized."""

    def register(function):
        for name in names:
            GENERATORS[name] = (function, modes.split(), measured)
        return function

    return register


def numbers(array):
    """The array's values; floats with no more digits than it takes to tell them apart."""
    array = np.asarray(array)
    return [float(str(v)) for v in array.ravel()] if array.dtype == np.float32 else array.ravel().tolist()


def short(scale):
    """The float32 next to a scale."""
    return float(str(np.float32(scale)))


class Case:
    """Draws options and inputs, and collects the model's tensors and operators. A quantized case is filled twice with the same seed:
    as a float model, whose outputs give the `ranges` for the quantized one. With `exact`, 8-bit weights of a float model are floats of
    the same value."""

    def __init__(self, operator, mode, seed, ranges=None, exact=False):
        self.operator, self.mode, self.ranges, self.exact = operator, mode, ranges, exact
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))
        self.scales = np.random.default_rng(zlib.crc32(seed.encode()) + 1)  # apart, so that both models draw the same values
        self.tensors, self.operators, self.inputs, self.outputs, self.feeds = [], [], [], [], {}
        self.subgraphs, self.state = [], []
        self.dynamic = self.chance(0.2)
        self.measuring = mode in QUANTIZED and ranges is None

    # -- draws

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def real(self, low, high):
        return round(float(self.rng.uniform(low, high)), 3)

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def shape(self, low_rank=1, high_rank=4, high=5):
        dims = [self.integer(1, high) for _ in range(self.integer(low_rank, high_rank))]
        if dims and self.chance(0.2):
            dims[-1] = self.integer(9, 20)
        return dims

    def axis(self, rank):
        return self.integer(-rank, rank - 1)

    def broadcast(self, shape):
        """A shape that broadcasts to `shape`."""
        dims = list(shape)[self.integer(0, len(shape)) if self.chance(0.4) else 0:]
        return [1 if self.chance(0.3) else d for d in dims]

    def values(self, shape, low=-3.0, high=3.0):
        """Real numbers of three digits after the point, so that recorded cases stay short."""
        return np.round(self.rng.uniform(low, high, shape), 3)

    def integers(self, shape, low, high):
        return self.rng.integers(low, high + 1, shape)

    # -- the type that the operator computes in

    @property
    def quantized(self):
        return self.mode in QUANTIZED and not self.measuring

    @property
    def kind(self):
        return "FLOAT32" if self.measuring else MODES[self.mode]

    @property
    def float(self):
        """Whether values are drawn as real numbers."""
        return self.mode in QUANTIZED or MODES[self.mode].startswith("FLOAT")

    def range_of(self, kind):
        return (np.iinfo(NUMPY[kind]).min, np.iinfo(NUMPY[kind]).max)

    def activation_scale(self, low, high):
        """Scale and zero point that cover [low, high]; 0 is exact."""
        low, high = min(low, 0.0), max(high, 0.0)
        least, most = self.range_of(self.kind)
        if self.mode == "q16":
            return short(max(-low, high, 1e-3) / most), 0
        scale = max(high - low, 1e-3) / (most - least)
        return short(scale), int(np.clip(round(least - low / scale), least, most))

    def encode(self, real, kind, scale, zero_point):
        least, most = self.range_of(kind)
        return np.clip(np.rint(np.asarray(real) / scale) + zero_point, least, most).astype(NUMPY[kind])

    # -- tensors; all give places

    def tensor(self, stem, kind, shape, **fields):
        name = f"{stem}{len(self.tensors)}"
        self.tensors.append({"name": name, "type": kind, "shape": [int(d) for d in shape]} | fields)
        return len(self.tensors) - 1

    def plain_constant(self, array, kind):
        array = np.asarray(array).astype(NUMPY[kind])
        return self.tensor("c", kind, array.shape, values=numbers(array))

    def plain_input(self, array, kind, batch=False, **fields):
        """An input of this type; with `batch` its first dim may be open in the model."""
        array = np.asarray(array).astype(NUMPY[kind])
        place = self.tensor("x", kind, array.shape, **fields)
        if batch and self.dynamic:
            self.tensors[place] |= {"shape": [1, *array.shape[1:]], "signature": [-1, *array.shape[1:]]}
        self.inputs.append(place)
        self.feeds[self.tensors[place]["name"]] = array
        return place

    def input(self, shape, low=-3.0, high=3.0, batch=False, scale=None):
        """An input in the case's type. For quantized ones `scale` is (scale, zero point) where it is not to be drawn."""
        if self.mode == "bool":
            return self.plain_input(self.rng.integers(0, 2, shape), "BOOL", batch)
        if not self.float:
            least = 0 if self.kind.startswith("UINT") else max(-SMALL_INTEGERS, int(np.ceil(low * 7)))
            return self.plain_input(self.integers(shape, least, max(least + 1, min(SMALL_INTEGERS, int(high * 7)))), self.kind, batch)
        return self.real_input(self.values(shape, low, high), low, high, batch, scale)

    def real_input(self, real, low, high, batch=False, scale=None):
        widen = self.scales.uniform(0.9, 1.3)
        if not self.quantized:
            return self.plain_input(real, self.kind, batch)
        scale, zero_point = scale or self.activation_scale(low * widen, high * widen)
        return self.plain_input(self.encode(real, self.kind, scale, zero_point), self.kind, batch, scale=[scale], zero_point=[zero_point])

    def constant(self, shape, low=-3.0, high=3.0):
        """A constant in the case's type, with ranges like those of an activation."""
        if not self.float:
            least = 0 if self.kind.startswith("UINT") or self.mode == "bool" else int(low * 4)
            return self.plain_constant(self.integers(shape, least, 1 if self.mode == "bool" else int(high * 4)), self.kind)
        real = self.values(shape, low, high)
        if not self.quantized:
            return self.plain_constant(real, self.kind)
        scale, zero_point = self.activation_scale(low, high)
        place = self.plain_constant(self.encode(real, self.kind, scale, zero_point), self.kind)
        self.tensors[place] |= {"scale": [scale], "zero_point": [zero_point]}
        return place

    def operand(self, shape, low=-3.0, high=3.0):
        """A second operand: an input or a constant."""
        return self.input(shape, low, high) if self.chance(0.6) else self.constant(shape, low, high)

    def weights(self, shape, axis=0, low=-1.0, high=1.0, per_channel=None):
        """Constant weights whose output channels lie along `axis`."""
        real = self.values(shape, low, high)
        each = self.chance(0.6) if per_channel is None else per_channel
        if self.mode == "f16w":
            half = self.plain_constant(real, "FLOAT16")
            return self.add("DEQUANTIZE", [half], ["FLOAT32"])[0]
        if not self.quantized and self.mode not in HYBRID:
            return self.plain_constant(real, self.kind)
        if self.mode == "qu8":
            scale = short((high - low) / 255)
            zero_point = int(np.clip(round(-low / scale), 0, 255))
            place = self.plain_constant(self.encode(real, "UINT8", scale, zero_point), "UINT8")
            self.tensors[place] |= {"scale": [scale], "zero_point": [zero_point]}
            return place
        others = tuple(a for a in range(len(shape)) if a != axis)
        most = np.abs(real).max(axis=others) if each else np.abs(real).max()
        bits4 = self.mode in ("q8w4", "hybrid4")
        largest = 7 if bits4 else 127
        scales = np.float32(np.maximum(most, 1e-2) / largest)
        along = scales.reshape([-1 if a == axis else 1 for a in range(len(shape))]) if each else scales
        encoded = self.encode(real, "INT8", along, 0).clip(-largest, largest)
        if self.exact:
            return self.plain_constant(np.float32(encoded) * along, "FLOAT32")
        place = self.plain_constant(encoded, "INT8")
        if bits4:
            self.tensors[place]["type"] = "INT4"
        scales = numbers(np.atleast_1d(scales))
        self.tensors[place] |= {"scale": scales, "zero_point": [0] * len(scales)} | ({"axis": axis} if each else {})
        return place

    def bias(self, count, data, weights, wide=None):
        """A constant bias for this input and these weights."""
        real = self.values([count], -2, 2)
        if not self.quantized:
            return self.plain_constant(real, "FLOAT32")
        kind = "INT64" if self.mode == "q16" and (self.scales.random() < 0.7 if wide is None else wide) else "INT32"
        scales = np.float32(self.tensors[data]["scale"][0]) * np.float32(self.tensors[weights]["scale"])
        place = self.plain_constant(np.rint(real / scales), kind)
        self.tensors[place] |= {"scale": numbers(scales), "zero_point": [0] * len(scales)} | ({"axis": 0} if len(scales) > 1 else {})
        return place

    def ints(self, values, kind="INT32", constant=0.85):
        """Axes, sizes and the like: constants in most models."""
        return self.plain_constant(values, kind) if self.chance(constant) else self.plain_input(values, kind)

    def variable(self, shape, kind=None, **fields):
        """State that the operator keeps from run to run, zero in the beginning."""
        place = self.tensor("s", kind or self.kind, shape, variable=True, **fields)
        self.keep(self.tensors[place]["name"], np.zeros(shape, NUMPY[kind or self.kind]))
        return place

    def keep(self, name, initial):
        """Tells which state the model begins with."""
        self.state.append((name, initial))

    # -- operators

    def add(self, operator, inputs, kinds, options=None, **fields):
        """Adds an operator with an output of each of these types; their places."""
        outputs = [self.tensor("t", kind, []) for kind in kinds]
        self.operators.append({"operator": operator, "inputs": list(inputs), "outputs": outputs} | fields |
                              ({"options": list(options)} if options else {}))
        return outputs

    def finish(self, inputs, options=None, outputs=1, kinds=None, like=None, scale=None, **fields):
        """Adds the operator itself; what it gives is what the model gives. Quantized outputs are quantized as the tensor `like`, by
        `scale`, (scale, zero point), or by their ranges."""
        kinds = kinds or [self.kind] * outputs
        places = self.add(self.operator, inputs, kinds, options, **fields)
        for place, kind in zip(places, kinds):
            self.give(place, kind, like, scale)

    def give(self, place, kind, like=None, scale=None):
        tensor = self.tensors[place]
        tensor["name"] = f"y{len(self.outputs)}"
        if self.quantized and kind == self.kind:
            if like is not None:
                tensor |= {k: self.tensors[like][k] for k in ("scale", "zero_point")}
            else:
                one, zero_point = scale or self.scale_of_output(*self.ranges[len(self.outputs)])
                tensor |= {"scale": [one], "zero_point": [zero_point]}
        self.outputs.append(place)

    def scale_of_output(self, low, high):
        """The scale of an output; for some, the ends of the range are cut off."""
        fit = self.scales.uniform(0.8, 1.2)
        return self.activation_scale(low * fit, high * fit)

    def model(self):
        main = {"tensors": self.tensors, "operators": self.operators, "inputs": self.inputs, "outputs": self.outputs}
        return {"subgraphs": [main, *self.subgraphs]}
