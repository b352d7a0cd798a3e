"""Imports, compiles and runs every Keras file, graph and saved model of a corpus, and compares with Keras, TensorFlow and recorded outputs.

Usage: python3 -m framework_corpus --quench build/release/bin/quench [--corpus DIR] [--table FILE] [--only TEXT]
(from tests/peers; needs tensorflow, keras and tf_keras)

A file that does not import must be in REFUSED with what is said of it. The keyword networks also hear the corpus' speech: their winners must
be TensorFlow's, and how many have the file's label is told.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import wave

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-4  # of the largest number, as for every trained network
# End of the path -> what is said of the file. The reasons are the files' own.
REFUSED = {
    "mobilenet_thin/graph.pb": "variables",  # as it was trained: 359 variables, and no checkpoint beside it
    "DTLN/pretrained_model/model.h5": "architecture",  # weights alone
    "pre_pr22362_nested_container.keras": "in Python code",  # a class of its own
}
# End of the path -> options of quench that a run needs.
OPTIONS = {
    "hey_snips_3.pb": ["--shape", "inputs=200,40"],
    "regression/graphdef/frozen.pb": ["--shape", "X=8"],
    "regression/saved_model": ["--shape", "X=8"],
    "gru/frozen.pb": ["--shape", "X=1,784", "--freeze", "keep_prob={one}", "--outputs", "output"],
}
TENSORS = ("test_data", "/testdata/", "/backend-test-data/")  # folders whose .pb files are tensors of ONNX
DROPOUT = {"gru/frozen.pb": {"keep_prob": 1.0}}  # what the option above gives TensorFlow

try:
    import keras
    import numpy
    import tensorflow
    import tf_keras
except ImportError as problem:
    print(f"skipped: no Keras or TensorFlow to compare with: {problem}")
    sys.exit(SKIPPED)

V1 = tensorflow.compat.v1


class Refused(Exception):
    pass


def quench(binary, *words, timeout=900):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Refused(" ".join(done.stderr.split())[:600] or f"exit {done.returncode}")
    return done.stdout


def compiled(binary, model, folder, options=()):
    """The library, and its inputs and outputs by name."""
    quench(binary, "compile", model, "--output", folder / "compiled", "--force", *options)
    return folder / "compiled" / "model.so"


def run(binary, library, given, folder):
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for old in out.glob("*.npy"):
        old.unlink()
    words = []
    for i, (name, values) in enumerate(given.items()):
        numpy.save(folder / f"in{i}.npy", values)
        words += ["--input", f"{name}={folder / f'in{i}.npy'}"]
    quench(binary, "run", library, "--output", out, *words)
    return {file.stem: numpy.load(file) for file in out.glob("*.npy")}


def error(ours, theirs):
    """Largest difference as a part of the largest number."""
    theirs = numpy.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    return float(numpy.abs(ours.astype("float64") - theirs).max(initial=0) / max(float(numpy.abs(theirs).max(initial=0)), 1e-30))


def matched(found, expected):
    """Each expected output beside the nearest of its shape."""
    return max((min((error(f, e) for f in found.values() if f.shape == numpy.asarray(e).shape), default=float("inf")) for e in expected), default=0.0)


def signature(binary, model, options):
    """{input: (shape, dtype)} of what quench imports; sizes of the run are 2."""
    inputs = json.loads(quench(binary, "import", model, "--format", "json", *options))["inputs"]
    sizes = lambda text: [int(d) if d.strip().isdigit() else 2 for d in text.partition("[")[2].rstrip("]").split(",") if d.strip()]
    return {i["name"]: (sizes(i["type"]), i["type"].partition("[")[0]) for i in inputs}


def random_inputs(shapes):
    random = numpy.random.default_rng(5)
    kinds = {"f32": "float32", "i32": "int32", "i64": "int64", "u8": "uint8"}
    draw = lambda shape, kind: random.uniform(0, 1, shape) if kind == "f32" else random.integers(0, 7, shape)
    return {name: draw(shape, kind).astype(kinds[kind]) for name, (shape, kind) in shapes.items()}


def load_keras(model):
    for library in (tf_keras, keras):
        try:
            return library.models.load_model(str(model), compile=False)
        except Exception as problem:  # whatever the other version's file makes of it
            why = problem
    raise why


def keras_outputs(model, given):
    network = load_keras(model)
    values = list(given.values())
    return tensorflow.nest.flatten(network(values if len(values) > 1 else values[0], training=False))


def graph_of(model):
    graph = V1.GraphDef()
    graph.ParseFromString(model.read_bytes())
    return graph


def graph_outputs(model, given, names):
    with tensorflow.Graph().as_default():
        tensorflow.import_graph_def(graph_of(model), name="")
        with V1.Session() as session:
            return session.run([f"{name}:0" for name in names], {f"{name}:0": values for name, values in given.items()})


def saved_outputs(folder, given):
    with tensorflow.Graph().as_default(), V1.Session() as session:
        meta = V1.saved_model.load(session, ["serve"], str(folder))
        ends = meta.signature_def["serving_default"]
        feed = {ends.inputs[name].name: values for name, values in given.items()}
        return session.run([info.name for info in ends.outputs.values()], feed)


def reference_error(binary, library, npz, folder, given):
    """The recorded pair: in0 is as the model takes it, in rows, or one of them."""
    arrays = numpy.load(npz)
    name, like = next(iter(given.items()))
    values = arrays["in0"]
    if values.size == like.size:
        return matched(run(binary, library, {name: values.reshape(like.shape)}, folder), [arrays["out0"]])
    rows = [values[i : i + 1] for i in range(len(values))] if values.ndim == like.ndim else list(values)
    results = [next(iter(run(binary, library, {name: row}, folder).values())) for row in rows]
    return error(numpy.concatenate(results), arrays["out0"])


def visit(binary, model, corpus, folder):
    """A row of the table: what became of the file."""
    relative = str(model.relative_to(corpus))
    row = {"file": relative, "imports": "no", "compiles": "", "matches": "", "failed": ""}
    one = folder / "one.npy"
    numpy.save(one, numpy.float32(1.0))
    options = next((o for end, o in OPTIONS.items() if relative.endswith(end)), [])
    options = [word.format(one=one) for word in options]
    expected = next((text for end, text in REFUSED.items() if relative.endswith(end)), None)
    try:
        shapes = signature(binary, model, options)
    except Refused as why:
        row["matches"] = str(why)
        row["failed"] = "" if expected is not None and expected in str(why) else "does not import"
        return row
    row["imports"] = "yes"
    if expected is not None:
        row["failed"] = f"imports, though `{expected}` was expected"
        return row
    try:
        library = compiled(binary, model, folder, options)
        row["compiles"] = "yes"
        given = random_inputs(shapes)
        if model.suffix in (".h5", ".hdf5", ".keras"):
            found = run(binary, library, given, folder)
            row["error"] = matched(found, keras_outputs(model, given))
        elif model.is_dir():
            row["error"] = matched(run(binary, library, given, folder), saved_outputs(model, given))
        elif "wav_data" in given:
            row["error"] = 0.0  # `hears` compares
        else:
            found = run(binary, library, given, folder)
            more = next((g for end, g in DROPOUT.items() if relative.endswith(end)), {})
            row["error"] = matched(found, graph_outputs(model, given | more, list(found)))
        npz = model.with_name(model.name + ".ref.npz")
        told = "" if "wav_data" in given else f"{row['error']:.1e} from the framework"
        if npz.exists():
            if "wav_data" in given:
                numpy.save(folder / "rate.npy", numpy.int32(16000))
                words = ["--inputs", "decoded_sample_data,decoded_sample_data:1", "--shape", "decoded_sample_data=16000,1"]
                words += ["--freeze", f"decoded_sample_data:1={folder / 'rate.npy'}"]
                library = compiled(binary, model, folder, words)
                given = {"decoded_sample_data": numpy.zeros((16000, 1), "float32")}
            recorded = reference_error(binary, library, npz, folder, given)
            row["error"] = max(row["error"], recorded)
            told += f"{', ' if told else ''}{recorded:.1e} from the recorded outputs"
        row["matches"] = told
        if not row["error"] <= TOLERANCE:
            row["failed"] = f"differs by {row['error']:.1e}"
    except Refused as why:
        row["failed"] = row["matches"] = str(why)
    return row


# ---- Speech ----


def speech(corpus):
    """(file's bytes as the networks take them, label) of what the corpus has."""
    testdata = corpus / "tensorflow__tflite-micro/tensorflow/lite/micro/examples/micro_speech/testdata"
    known = {"yes_1000ms": "yes", "no_1000ms": "no", "silence_1000ms": "_silence_", "noise_1000ms": "_silence_"}
    clips = [((testdata / f"{name}.wav").read_bytes(), label) for name, label in known.items()]
    clips.append(((corpus / "ARM-software__ML-KWS-for-MCU/silence.wav").read_bytes(), "_silence_"))
    header = clips[0][0][:44]
    for file in sorted((corpus / "Jakobovski__free-spoken-digit-dataset/recordings").glob("*.wav")):
        with wave.open(str(file)) as digits:  # 8 kHz; no digit is a keyword
            samples = numpy.frombuffer(digits.readframes(digits.getnframes()), "<i2").astype("float64")
        twice = numpy.interp(numpy.arange(0, len(samples), 0.5), numpy.arange(len(samples)), samples)[:16000]
        padded = numpy.pad(twice, (0, 16000 - len(twice))).round().astype("<i2")
        clips.append((header + padded.tobytes(), "_unknown_"))
    return clips


def hears(binary, model, clips, folder):
    """A line for one network, and whether it fails."""
    labels = (model.parents[1] / "labels.txt").read_text().split()
    library = compiled(binary, model, folder)
    theirs, ours = [], []
    with tensorflow.Graph().as_default():
        tensorflow.import_graph_def(graph_of(model), name="")
        with V1.Session() as session:
            for clip, _ in clips:
                theirs.append(session.run("labels_softmax:0", {"wav_data:0": clip})[0])
    for clip, _ in clips:
        ours.append(run(binary, library, {"wav_data": numpy.frombuffer(clip, "uint8")}, folder)["labels_softmax"][0])
    worst = max(error(a, b) for a, b in zip(ours, theirs))
    same = sum(int(a.argmax() == b.argmax()) for a, b in zip(ours, theirs))
    right = [int(labels[a.argmax()] == label) for a, (_, label) in zip(ours, clips)]
    wanted = [int(labels[b.argmax()] == label) for b, (_, label) in zip(theirs, clips)]
    words = sum(1 for _, label in clips if label != "_unknown_")
    line = (f"{model.name}: {sum(right[:words])} of {words} words and silences, {sum(right[words:])} of {len(clips) - words} digits as unknown "
            f"(TensorFlow {sum(wanted[:words])} and {sum(wanted[words:])}); {same} of {len(clips)} winners are TensorFlow's, differs by {worst:.1e}")
    return line, same != len(clips) or not worst <= TOLERANCE


# ---- DTLN, whose file has weights alone ----


def dtln_halves(K):
    """The network between its Fourier transforms, under the names that its weights have."""
    L = K.layers
    spectrum = K.Input((None, 257), name="spectrum")
    x = L.LSTM(128, return_sequences=True, name="lstm")(spectrum)
    x = L.LSTM(128, return_sequences=True, name="lstm_1")(x)
    mask = L.Activation("sigmoid", name="activation")(L.Dense(257, name="dense")(x))
    first = K.Model(spectrum, L.Multiply(name="masked")([spectrum, mask]))
    frames = K.Input((None, 512), name="frames")
    encoded = L.Conv1D(256, 1, use_bias=False, name="conv1d")(frames)
    x = L.LayerNormalization(epsilon=1e-7, name="layer_normalization")(encoded)
    x = L.LSTM(128, return_sequences=True, name="lstm_2")(x)
    x = L.LSTM(128, return_sequences=True, name="lstm_3")(x)
    mask = L.Activation("sigmoid", name="activation_1")(L.Dense(256, name="dense_1")(x))
    decoded = L.Conv1D(512, 1, padding="causal", use_bias=False, name="conv1d_1")(L.Multiply(name="multiply")([encoded, mask]))
    return first, K.Model(frames, decoded)


def dtln(binary, weights, folder):
    worst = 0.0
    random = numpy.random.default_rng(3)
    for half in dtln_halves(tf_keras):
        half.load_weights(str(weights), by_name=True)
        (folder / "half.json").write_text(half.to_json())
        given = {half.inputs[0].name: numpy.abs(random.normal(0, 1, (1, 20, half.inputs[0].shape[-1]))).astype("float32")}
        library = compiled(binary, weights, folder, ["--architecture", folder / "half.json"])
        worst = max(worst, matched(run(binary, library, given, folder), [half(next(iter(given.values())), training=False)]))
    return worst


def files_in(corpus):
    for path in sorted(corpus.rglob("*")):
        inside = str(path)
        if path.name == "saved_model.pb":
            yield path.parent
        elif path.suffix in (".h5", ".hdf5", ".keras") or (path.suffix == ".pb" and not any(part in inside for part in TENSORS)):
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quench", required=True)
    parser.add_argument("--corpus", type=pathlib.Path, default=pathlib.Path(os.environ.get("QUENCH_CORPUS", HERE.parents[2] / "shared" / "corpus")))
    parser.add_argument("--table", type=pathlib.Path, help="writes the table as Markdown")
    parser.add_argument("--only", default=os.environ.get("QUENCH_TEST_PATTERN", ""))
    args = parser.parse_args()
    corpus = args.corpus.resolve()
    models = [m for m in files_in(corpus) if args.only.lower() in str(m).lower()] if corpus.is_dir() else []
    if not models:
        print("skipped: no files to compare")
        return SKIPPED
    failures, rows = [], []
    clips = speech(corpus) if any("ML-KWS" in str(m) for m in models) else []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in models:
            row = visit(args.quench, model, corpus, folder)
            if not row["failed"] and "ML-KWS" in row["file"]:
                line, failed = hears(args.quench, model, clips, folder)
                row["matches"] += f"; {line.partition(': ')[2]}"
                row["failed"] = "hears something else than TensorFlow" if failed else ""
            if "DTLN" in row["file"]:
                worst = dtln(args.quench, model, folder)
                row["matches"] += f"; with --architecture {worst:.1e} from Keras"
                row["failed"] = row["failed"] or ("" if worst <= TOLERANCE else f"with --architecture: differs by {worst:.1e}")
            rows.append(f"| {row['file']} | {row['imports']} | {row['compiles'] or 'no'} | {row['matches']} |")
            print(rows[-1], flush=True)
            if row["failed"]:
                failures.append(f"{row['file']}: {row['failed']}")
    if args.table:
        args.table.write_text("| file | imports | compiles | beside the framework |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    for line in failures:
        print("FAIL", line)
    print(f"{len(models)} files, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
