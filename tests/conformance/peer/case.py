"""One random case: an ONNX model of a node or a few, with the inputs it is run on."""

import pathlib
import zlib

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OLDEST_OPSET = 7
GENERATORS = {}  # (domain, operator) -> function that fills a Case

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
I8, I16, I32, I64 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64))
U8, U16, U32, U64 = (np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
BOOL = np.dtype(np.bool_)
FLOATS = (F32, F32, F32, F64, F16)
SIGNED = (I32, I64, I8, I16)
UNSIGNED = (U8, U16, U32, U64)
NUMBERS = FLOATS + SIGNED + UNSIGNED
ONNX_TYPES = {F16: "float16", F32: "float", F64: "double", I8: "int8", I16: "int16", I32: "int32", I64: "int64", U8: "uint8",
              U16: "uint16", U32: "uint32", U64: "uint64", BOOL: "bool"}


class Excluded(Exception):
    """The drawn case is on the list of exclusions."""


def generator(*names, domain=""):
    """Registers the function as the one that draws cases of the operators `names`."""

    def register(function):
        for name in names:
            GENERATORS[domain, name] = function
        return function

    return register


def element_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Case:
    """Draws attributes and inputs, and collects the model's nodes. Everything follows from the seed's text."""

    def __init__(self, domain, op, seed, newest_opset, exclusions):
        self.domain, self.op, self.exclusions = domain, op, exclusions
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))
        self.nodes, self.inputs, self.initializers, self.outputs = [], [], [], []
        self.symbolic = self.chance(0.2)
        self.opset = self.pick_opset(newest_opset)

    def pick_opset(self, newest):
        """Any version of the operator is as likely as another."""
        if self.domain:
            return newest
        since = dict(sorted((s.since_version, s.deprecated) for s in onnx.defs.get_all_schemas_with_history()
                            if s.domain == self.domain and s.name == self.op and s.since_version <= newest))
        ends = [v - 1 for v in list(since)[1:]] + [newest]
        ranges = [(max(begin, OLDEST_OPSET), end) for (begin, deprecated), end in zip(since.items(), ends)
                  if end >= OLDEST_OPSET and not deprecated]
        return self.integer(*self.pick(*ranges))

    # -- draws

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def real(self, low, high):
        return float(np.float32(self.rng.uniform(low, high)))

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def shape(self, low_rank=0, high_rank=4, low=1, high=6):
        """Small dims, one now and then long enough for the vector loops, rarely an empty one."""
        dims = [self.integer(low, high) for _ in range(self.integer(low_rank, high_rank))]
        if dims and self.chance(0.15):
            dims[self.integer(0, len(dims) - 1)] = self.integer(15, 40)
        if dims and low == 1 and self.chance(0.02):
            dims[self.integer(0, len(dims) - 1)] = 0
        return dims

    def axis(self, rank):
        return self.integer(-rank, rank - 1)

    def axes(self, rank, low=1):
        """Distinct axes, some written from the end."""
        chosen = self.rng.permutation(rank)[:self.integer(min(low, rank), rank)]
        return [int(a) - (rank if self.chance(0.3) else 0) for a in chosen]

    def broadcast(self, shape):
        """A shape that broadcasts to `shape`: leading dims dropped, others 1."""
        dims = list(shape)[self.integer(0, len(shape)) if self.chance(0.4) else 0:]
        return [1 if self.chance(0.3) else d for d in dims]

    def dtype(self, parameter="T", among=NUMBERS, schema_of=None):
        """A type that the operator's schema allows for this type parameter."""
        allowed = self.allowed(parameter, schema_of)
        options = [d for d in among if f"tensor({ONNX_TYPES[d]})" in allowed]
        if not options:
            raise Excluded(f"opset {self.opset} has none of the types")
        return self.pick(*options)

    def allowed(self, parameter, schema_of=None):
        schema = onnx.defs.get_schema(schema_of or self.op, self.opset, "" if schema_of else self.domain)
        return next(c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == parameter)

    def values(self, dtype, shape, low=-3.0, high=3.0, special=False):
        dtype = np.dtype(dtype)
        if dtype == BOOL:
            return np.asarray(self.rng.random(shape) < 0.5)
        if np.issubdtype(dtype, np.floating):
            array = np.asarray(self.rng.uniform(low, high, shape), dtype)
            if special and self.chance(0.15):
                odd = self.rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape).astype(dtype)
                array = np.where(self.rng.random(shape) < 0.2, odd, array)
            return np.asarray(array, dtype)
        info = np.iinfo(dtype)
        return np.asarray(self.rng.integers(max(int(np.ceil(low)), info.min), min(int(np.floor(high)), info.max), shape, endpoint=True), dtype)

    def exclude(self, key):
        """Draws again: ONNX Runtime is known to deviate here, and the list says why."""
        full = f"{self.op}:{key}"
        if full not in self.exclusions:
            raise KeyError(f"`{full}` is not in the list of exclusions")
        raise Excluded(full)

    # -- the model

    def at_least(self, opset):
        return self.opset >= opset

    def name(self, stem):
        return f"{stem}{len(self.inputs) + len(self.initializers) + len(self.nodes)}"

    def input(self, array, fixed=()):
        """An input of the model. Some dims may be symbolic, but not the axes `fixed`: attributes or the operator depend on their size."""
        name, array = self.name("x"), np.asarray(array)
        fixed = [a % array.ndim for a in fixed]
        dims = [f"{name}_{i}" if self.symbolic and d and i not in fixed and self.chance(0.5) else d for i, d in enumerate(array.shape)]
        self.inputs.append((name, array, dims))
        return name

    def constant(self, array):
        name, array = self.name("c"), np.asarray(array)
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        if self.chance(0.2):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def parameter(self, array):
        """Weights and the like: constants in most models, of a known size in all."""
        return self.constant(array) if self.chance(0.7) else self.input(array, fixed=range(np.ndim(array)))

    def setting(self, array):
        """Axes, sizes and the like: constants in nearly all models, and computed in some."""
        array = np.asarray(array)
        return self.constant(array) if self.chance(0.8) else self.input(array)

    def ints(self, values):
        return self.setting(np.array(values, np.int64))

    def node(self, op, inputs, outputs=1, domain="", **attributes):
        """Adds a node, returns its outputs' names. Attributes that are None are left out, inputs that are None stay empty."""
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        inputs = [i or "" for i in inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names

    def finish(self, inputs, outputs=1, **attributes):
        """Adds the operator itself; what it gives is what the model gives."""
        self.outputs += [n for n in self.node(self.op, inputs, outputs, self.domain, **attributes) if n]

    def maybe(self, value, probability=0.7):
        """The value, or None for what is left out."""
        return value if self.chance(probability) else None

    def model(self, results=None):
        """The model; with ONNX Runtime's results, its outputs have types."""
        infos = []
        for name, dims, array in results or [(n, None, None) for n in self.outputs]:
            infos.append(helper.make_empty_tensor_value_info(name) if array is None else
                         helper.make_tensor_value_info(name, element_type(array.dtype), dims))
        inputs = [helper.make_tensor_value_info(n, element_type(a.dtype), d) for n, a, d in self.inputs]
        graph = helper.make_graph(self.nodes, self.op, inputs, infos, self.initializers)
        opsets = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid(self.domain, 1)] if self.domain else [])
        model = helper.make_model(graph, opset_imports=opsets, producer_name="quench-peer")
        model.ir_version = 10 if self.opset >= 21 else 8
        return model

    def save(self, folder, results):
        data = pathlib.Path(folder) / "test_data_set_0"
        data.mkdir(parents=True)
        onnx.save(self.model(results), data.parent / "model.onnx")
        for i, (name, array, _) in enumerate(self.inputs):
            (data / f"input_{i}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
        for i, (name, _, array) in enumerate(results):
            (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
