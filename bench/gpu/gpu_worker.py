"""A process that uses the GPU: commands come as lines of JSON, answers go out as such. A kernel that faults ends it, not the rest.

Usage: gpu_worker.py PACK DEVICE       what gpu_check.py starts

{"do": "check", "case": name}    compares a library's results; the answer lists what is wrong
{"do": "prepare", "case": name}  opens a library with its inputs and outputs in device memory
{"do": "burst", "seconds": s}    runs the prepared one for so long: median and least milliseconds, and how many runs
"""

import json
import pathlib
import sys
import threading
import time

import numpy as np

import gpu_device
from gpu_device import CANCELLED, CHECK, DEVICE, INVALID, Driver, Failure, Library, Runtime, make_inputs

SLOWEST = 8  # nodes of a profile that are reported
DEVICE_RUNS = 4  # the third of runs in the same memory makes a CUDA graph, the fourth launches it again
CANCEL_SECONDS = 2


class DeviceMemory:
    """Inputs and outputs of a session in memory of its GPU."""

    def __init__(self, session, driver, inputs, outputs):
        self._driver, self._inputs, self._outputs = driver, [], []
        for index, array in enumerate(inputs):
            address = driver.allocate(array.nbytes)
            self._inputs.append(address)
            session.set_device_input(index, array, address)
        for index, array in enumerate(outputs):
            address = driver.allocate(array.nbytes)
            self._outputs.append((address, array))
            session.set_device_output(index, address, array.nbytes)
        self.write(inputs)

    def write(self, arrays):
        for address, array in zip(self._inputs, arrays):
            self._driver.upload(address, array)

    def read(self):
        return [self._driver.download(address, array) for address, array in self._outputs]

    def free(self):
        for address in [*self._inputs, *(address for address, _ in self._outputs)]:
            self._driver.free(address)


class Worker:
    def __init__(self, pack, device):
        self._pack, self._device = pack, device
        self._index = int(device.partition(":")[2] or 0)
        self._cases = {case["name"]: case for case in json.loads((pack / "expectations.json").read_text())["cases"]}
        self._runtime = Runtime(pack / "libquench_rt.so")
        self._driver = None if device == "cpu" else Driver(self._index)
        self._library = self._session = self._memory = None  # that are prepared for bursts

    def _open(self, case):
        return Library(self._runtime, self._pack / case["library"])

    # ---- results ----

    def check(self, case):
        case = self._cases[case]
        found = {"case": case["name"], "problems": [], "errors": {}}
        inputs = make_inputs(case)
        if gpu_device.digest(inputs) != case["inputs_sha256"]:
            return {**found, "problems": ["this numpy makes other inputs than the machine that packed did"]}
        started = time.perf_counter()
        with self._open(case) as library:
            with library.session(self._device) as session:
                found.update(open_s=time.perf_counter() - started, variant=session.variant)
                self._run(case, library, session, inputs, found)
            for name in case.get("also", ()):
                found["problems"] += getattr(self, "_also_" + name)(case, library, inputs, found)
        return found

    def _run(self, case, library, session, inputs, found):
        if "fails" in case:
            found["problems"] += self._expect_failure(case, session, inputs)
            return
        results = session.infer(inputs, len(case["outputs"]))
        found["problems"] += self._compare(case, results, found["errors"])
        found["problems"] += self._again(case, library, session, inputs, results)
        if case.get("profile"):
            session.set_inputs(inputs)
            session.profile()
            found["profile"] = [[1e3 * s, *names] for s, *names in session.profile()[:SLOWEST]]

    def _compare(self, case, results, errors):
        problems = []
        with np.load(self._pack / case["reference"]) as file:
            references = [file[f"output_{i}"] for i in range(len(case["outputs"]))]
        for spec, result, reference in zip(case["outputs"], results, references):
            if spec["bound"] == 0:
                unequal = gpu_device.unequal(result, reference)
                errors[spec["name"]] = gpu_device.difference(result, reference) if unequal else 0.0
                if unequal:
                    problems.append(f"`{spec['name']}`: {unequal} of {reference.size} values do not have the bits that are due")
                continue
            error = gpu_device.difference(result, reference)
            errors[spec["name"]] = error
            if not error <= spec["bound"]:
                problems.append(f"`{spec['name']}` is off by {error:.2g}, the bound is {spec['bound']:.2g}")
        return problems

    def _again(self, case, library, session, inputs, results):
        """The same bits in a second run, and from a session of its own in device memory, where runs become a graph."""
        count, problems = len(case["outputs"]), []
        if not self._equal(session.infer(inputs, count), results):
            problems.append("a second run gives other bits")
        if self._driver is None or case.get("sizes") == "run":
            return problems
        others = make_inputs(case, variation=1)
        wanted = session.infer(others, count) if case.get("varies", True) else None
        with library.session(self._device) as second:
            memory = DeviceMemory(second, self._driver, inputs, results)
            for number in range(1, DEVICE_RUNS + 1):
                second.run()
                if not self._equal(memory.read(), results):
                    problems.append(f"run {number} in device memory gives other bits")
                    break
            if wanted is not None:
                memory.write(others)
                second.run()
                if not self._equal(memory.read(), wanted):
                    problems.append("other inputs in the same device memory give other bits than in host memory")
            memory.free()
        return problems

    @staticmethod
    def _equal(results, others):
        return all(gpu_device.same_bits(a, b) for a, b in zip(results, others))

    @staticmethod
    def _expect_failure(case, session, inputs):
        """The data breaks a rule of the model: the sentence of the CPU's code, and the session works on."""
        try:
            session.infer(inputs, len(case["outputs"]))
        except Failure as failure:
            if failure.code == CHECK and str(failure) == case["fails"]:
                return []
            return [f"the error is {failure.code} `{failure}` instead of {CHECK} `{case['fails']}`"]
        return [f"no error, where the CPU says `{case['fails']}`"]

    # ---- calls of the runtime, for the cases that name them ----

    def _also_stream(self, case, library, inputs, _):
        """A stream of the caller's, and an input that earlier work of that stream writes."""
        with library.session(self._device) as session:
            wanted = session.infer(inputs, len(case["outputs"]))
        stream = self._driver.stream()
        try:
            with library.session(self._device, stream) as session:
                if not self._equal(session.infer(inputs, len(wanted)), wanted):
                    return ["a stream of the caller's gives other bits"]
                address = self._driver.allocate(inputs[0].nbytes)
                session.set_device_input(0, inputs[0], address)
                self._driver.upload(address, inputs[0], stream)
                session.run()
                equal = self._equal([session.output(i) for i in range(len(wanted))], wanted)
                self._driver.free(address)
                return [] if equal else ["an input that the caller's stream writes gives other bits"]
        finally:
            self._driver.end_stream(stream)

    def _also_cancel(self, case, library, inputs, found):
        """Another thread cancels runs until one says so, which is luck where runs are short; the next run is right."""
        with library.session(self._device) as session:
            wanted = session.infer(inputs, len(case["outputs"]))
            stop = threading.Event()

            def cancel():
                while not stop.is_set():
                    session.cancel()

            thread = threading.Thread(target=cancel)
            thread.start()
            end, cancelled = time.monotonic() + CANCEL_SECONDS, False
            try:
                while not cancelled and time.monotonic() < end:
                    try:
                        session.run()
                    except Failure as failure:
                        if failure.code != CANCELLED:
                            raise
                        cancelled = True
            finally:
                stop.set()
                thread.join()
            if not cancelled:
                found["note"] = f"no run could be cancelled in {CANCEL_SECONDS} s"
            if self._equal(session.infer(inputs, len(wanted)), wanted):
                return []
            return ["after a cancelled run, results have other bits"]

    def _also_refusals(self, case, library, inputs, _):
        """A device that is not there, and an address of the host's where one of the device is asked for."""
        problems = []
        try:
            library.session("cuda:99").close()
            problems.append("`cuda:99` was opened")
        except Failure as failure:
            if failure.code != DEVICE:
                problems.append(f"`cuda:99` is the error {failure.code} `{failure}`")
        with library.session(self._device) as session:
            try:
                session.set_device_input(0, inputs[0], inputs[0].ctypes.data & ~63)
                problems.append("host memory was taken for device memory")
            except Failure as failure:
                if failure.code != INVALID:
                    problems.append(f"host memory is the error {failure.code} `{failure}`")
        return problems

    def _also_sizes(self, case, library, inputs, _):
        """Sizes of a run that change to and fro: what a batch gives is what its parts give, and a size that comes back has its bits."""
        problems, count = [], len(case["outputs"])
        with library.session(self._device) as session:
            whole = session.infer(inputs, count)
            rows = len(whole[0])
            for begin, end in ((0, 1), (1, rows), (rows - 1, rows)):
                parts = [array[begin:end] if len(array) == rows else array for array in inputs]
                part = session.infer(parts, count)
                if any(gpu_device.difference(a, b[begin:end]) > 1e-5 for a, b in zip(part, whole)):
                    problems.append(f"rows {begin} to {end} alone give other results than in a batch")
            if not self._equal(session.infer(inputs, count), whole):
                problems.append("a size that comes back gives other bits")
        return problems

    # ---- times ----

    def prepare(self, case):
        case = self._cases[case]
        if self._session is not None:
            self._memory.free()
            self._session.close()
            self._library.close()
        started = time.perf_counter()
        self._library = self._open(case)
        self._session = self._library.session(self._device)
        opened = time.perf_counter() - started
        inputs = make_inputs(case)
        with np.load(self._pack / case["reference"]) as file:
            outputs = [file[f"output_{i}"] for i in range(len(case["outputs"]))]
        self._memory = DeviceMemory(self._session, self._driver, inputs, outputs)
        for _ in range(DEVICE_RUNS):
            self._session.run()
        return {"open_s": opened}

    def burst(self, seconds):
        return timed(self._session.run, seconds)


def timed(run, seconds):
    """Milliseconds of runs, each waited for."""
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": float(np.median(times)), "min_ms": min(times), "runs": len(times)}


def answer(work):
    """The result of a call, or its error."""
    try:
        return work()
    except Failure as failure:
        return {"failed": str(failure), "code": failure.code}
    except Exception as error:  # the other process reports it
        return {"failed": f"{type(error).__name__}: {error}", "code": 0}


def serve(worker):
    """Commands from stdin until it ends. stdout is the answers' alone: what libraries print goes to stderr."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        command = json.loads(line)
        method = getattr(worker, command.pop("do"))
        print(json.dumps(answer(lambda: method(**command))), file=answers, flush=True)


if __name__ == "__main__":
    made = []
    print(json.dumps(answer(lambda: made.append(Worker(pathlib.Path(sys.argv[1]), sys.argv[2])) or {})), flush=True)
    if made:
        serve(made[0])
