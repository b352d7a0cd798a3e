#!/usr/bin/env python3
"""Checks Quench on this machine's GPU: results of the pack's libraries, then times, f16 beside PyTorch where it is installed.

Usage: ./run [options]                 in an unpacked pack; needs python3 with numpy, and NVIDIA's driver
  --device cuda:N   (default: cuda:0)
  --budget SECONDS  for everything (default: 240). Cases that do not fit are reported as not run
  --json FILE       all that was measured (default: gpu_check.json)
  --table FILE      the same in Markdown (default: that of --json, with `.md`)
  --only TEXT       cases whose name contains it
  --jobs N          processes that check at once (default: half of the CPUs, at most 6)
  --no-torch        without PyTorch; --quick: also with shorter times

Results are compared with those that the machine which packed has recorded: floats within the bounds of expectations.json, 8-bit
integers to the bit. Every library runs from host memory, again, and from device memory, where runs become a CUDA graph: all have
to have the same bits. A case that faults or hangs ends its process, not the others; after a fault it is run once more, one launch
at a time, so that the error names its node. Times are wall times of whole runs with inputs and outputs on the GPU, after nothing else is
running there: bursts of Quench, PyTorch (eager) and torch.compile(mode="max-autotune") take turns.

Exit code: 0 all results are right; 1 some are not; 2 usage, or no GPU; 3 none is wrong, but not all could be checked in time.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import gpu_report
from gpu_device import DEVICE, Failure, Runtime

HERE = pathlib.Path(__file__).resolve().parent
CASE_SECONDS = 60  # for one case, its library's translation by the driver included
START_SECONDS = 60  # for a process to be ready
COMPILE_SECONDS = 600  # for torch.compile, which the budget ends
TORCH_JOBS = 2  # networks that PyTorch compiles at once
ROUNDS = 3


class Gone(Exception):
    """A process has ended, or was ended since it gave no answer in time."""

    def __init__(self, text, hangs=False):
        super().__init__(text)
        self.hangs = hangs


class Process:
    """A worker that takes commands and answers, each as a line of JSON."""

    def __init__(self, *arguments, log, **environment):
        self._process = subprocess.Popen([sys.executable, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=log, universal_newlines=True, start_new_session=True,
                                         env={**os.environ, **environment})
        self._answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._wait(START_SECONDS)

    def _read(self):
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _wait(self, seconds):
        try:
            line = self._answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            self.stop()
            raise Gone(f"no answer within {seconds:.0f} s", hangs=True) from None
        if line is None:
            self.stop()
            raise Gone(f"the process ended with {self._process.wait()}")
        found = json.loads(line)
        if "failed" in found:
            raise Failure(found["code"], found["failed"])
        return found

    def ask(self, timeout, **command):
        """The answer. Raises Failure for an error of the worker's, and Gone if there is no worker afterwards."""
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Gone("the process ended") from None
        return self._wait(timeout)

    def stop(self):
        """Ends it with all that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


class Check:
    def __init__(self, args, pack):
        self.args, self.pack, self.started = args, pack, time.monotonic()
        self.deadline = self.started + args.budget
        self.expected = json.loads((pack / "expectations.json").read_text())
        self.cases = [case for case in self.expected["cases"] if args.only in case["name"]]
        names = {case["name"] for case in self.cases}
        self.rows = [row for row in self.expected["times"] if row["case"] in names]
        self.results, self._lock = {}, threading.Lock()
        self._log = open(args.json.with_suffix(".log"), "w")
        self._torch, self._torch_error = {}, ""

    def left(self):
        return self.deadline - time.monotonic()

    def worker(self, **environment):
        return Process(HERE / "gpu_worker.py", self.pack, self.args.device, log=self._log, **environment)

    def say(self, text):
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    # ---- results ----

    def check_all(self):
        # The longest first: the driver translates their kernels while others run.
        order = sorted(self.cases, key=lambda case: case["kind"] != "network")
        todo = queue.SimpleQueue()
        for case in order:
            todo.put(case)
        lanes = [threading.Thread(target=self._lane, args=(todo,)) for _ in range(self.args.jobs)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, todo):
        worker = None
        while True:
            try:
                case = todo.get_nowait()
            except queue.Empty:
                break
            if self.left() <= 0:
                self._add({"case": case["name"], "not_run": "the budget was spent"})
                continue
            found, worker = self._check(case, worker)
            self._add(found)
        if worker is not None:
            worker.stop()

    def _check(self, case, worker):
        """The answer, and the worker for the next case."""
        try:
            worker = worker or self.worker()
            return worker.ask(min(CASE_SECONDS, self.left()), do="check", case=case["name"]), worker
        except Failure as failure:
            problem, is_fault = f"error {failure.code}: {failure}", failure.code == DEVICE
            if not is_fault and worker is not None:
                return {"case": case["name"], "problems": [problem]}, worker
        except Gone as gone:
            if self.left() <= 0:
                return {"case": case["name"], "not_run": f"the budget was spent: {gone}"}, None
            problem, is_fault = str(gone), not gone.hangs
        if worker is not None:
            worker.stop()
            if is_fault and self.left() > CASE_SECONDS / 2:
                problem += f"; one launch at a time: {self._slowly(case)}"
        return {"case": case["name"], "problems": [problem]}, None

    def _slowly(self, case):
        """How the case ends in a process that waits for each launch: its error names the node."""
        slow = None
        try:
            slow = self.worker(CUDA_LAUNCH_BLOCKING="1")
            found = slow.ask(CASE_SECONDS / 2, do="check", case=case["name"])
            return "; ".join(found["problems"]) or "all is right"
        except (Failure, Gone) as error:
            return str(error)
        finally:
            if slow is not None:
                slow.stop()

    def _add(self, found):
        with self._lock:
            self.results[found["case"]] = found
            self.say(f"[{len(self.results)}/{len(self.cases)}] {found['case']}: {gpu_report.sentence(found)}")

    # ---- PyTorch ----

    def start_torch(self):
        """Processes that make the networks and compile them meanwhile, a few at a time."""
        self._lanes = []
        rows = [row for row in self.rows if row["torch"]]
        if self.args.no_torch or not rows:
            self._torch_error = "not asked for"
        elif importlib.util.find_spec("torch") is None:
            self._torch_error = "PyTorch is not installed"
        else:
            todo = queue.SimpleQueue()
            for row in rows:
                todo.put(row)
            self._lanes = [threading.Thread(target=self._torch_lane, args=(todo,), daemon=True) for _ in range(TORCH_JOBS)]
        for lane in self._lanes:
            lane.start()

    def _torch_lane(self, todo):
        while True:
            try:
                row = todo.get_nowait()
            except queue.Empty:
                return
            entry = self._torch[row["case"]] = {"state": "starting"}
            try:
                entry["process"] = Process(HERE / "gpu_torch.py", self.args.device.partition(":")[2] or "0", log=self._log)
                entry.update(entry["process"].ask(COMPILE_SECONDS, do="prepare", network=row["network"], batch=row["batch"]))
                entry["state"] = "compiling"
                entry.update(entry["process"].ask(COMPILE_SECONDS, do="compile"))
                entry["state"] = "compiled"
            except (Failure, Gone) as error:
                entry["problem"] = f"{entry['state']}: {error}"

    def wait_for_torch(self, reserve):
        """Until all is compiled, or only the time for bursts is left. Compilers that are not done are ended: they use the GPU."""
        for lane in self._lanes:
            lane.join(max(self.left() - reserve, 0))
        for row in (row for row in self.rows if row["torch"]):
            entry = self._torch.setdefault(row["case"], {"state": "waiting"})
            if entry["state"] != "compiled":
                if "process" in entry:
                    entry["process"].stop()
                entry.setdefault("problem", self._torch_error or f"the budget was too short ({entry['state']})")

    # ---- times ----

    def time_all(self):
        """Bursts of one competitor after the other; nothing else runs meanwhile."""
        worker, rows = None, []
        for row in self.rows:
            row = dict(row)
            rows.append(row)
            if self.left() < self._row_seconds(row):
                row["not_run"] = "the budget was spent"
            elif "problems" not in self.results.get(row["case"], {}):
                row["not_run"] = "its results were not checked"
            else:
                try:
                    worker = worker or self.worker()
                    self._time(row, worker)
                    self.say(gpu_report.time_sentence(row))
                except (Failure, Gone) as error:
                    row["not_run"] = str(error)
                    if worker is not None:
                        worker.stop()
                    worker = None
        if worker is not None:
            worker.stop()
        return rows

    def _row_seconds(self, row):
        return 1.5 + ROUNDS * self.args.burst * (3 if row["torch"] else 1)

    def _time(self, row, worker):
        row.update(worker.ask(CASE_SECONDS, do="prepare", case=row["case"]))
        entry = self._torch.get(row["case"], {})
        runners = {"quench": lambda: worker.ask(CASE_SECONDS, do="burst", seconds=self.args.burst)}
        if entry.get("state") == "compiled":
            for how in ("eager", "compiled"):
                runners[how] = lambda how=how: entry["process"].ask(CASE_SECONDS, do="burst", how=how, seconds=self.args.burst)
            row.update({key: entry[key] for key in ("torch", "compile_s") if key in entry})
        elif "problem" in entry:
            row["torch_problem"] = entry["problem"]
        row["rounds"] = [{name: run() for name, run in runners.items()} for _ in range(ROUNDS)]
        for name in runners:
            medians = sorted(each[name]["median_ms"] for each in row["rounds"])
            row[f"{name}_ms"] = medians[len(medians) // 2]

    def run(self, gpu):
        self.say(f"{gpu['name']} ({gpu['arch']}), CUDA {gpu['cuda']}, driver {gpu['driver'] or 'unknown'}; "
                 f"{len(self.cases)} libraries of {self.expected['revision']}")
        self.start_torch()
        try:
            self.check_all()
            self.wait_for_torch(sum(self._row_seconds(row) for row in self.rows))
            rows = self.time_all()
        finally:
            for entry in self._torch.values():
                if "process" in entry:
                    entry["process"].stop()
        order = [self.results[case["name"]] for case in self.cases]
        facts = {"gpu": gpu, "revision": self.expected["revision"], "date": time.strftime("%Y-%m-%d"),
                 "torch": next((entry["torch"] for entry in self._torch.values() if "torch" in entry), ""),
                 "seconds": time.monotonic() - self.started, "results": order, "times": rows}
        self.args.json.write_text(json.dumps(facts, indent=1) + "\n")
        self.args.table.write_text(gpu_report.table(facts, self.expected))
        return facts


def find_gpu(pack, device):
    """Facts about the card. Raises Failure or OSError with a sentence."""
    found = Runtime(pack / "libquench_rt.so").gpu(int(device.partition(":")[2] or 0))
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = ""
    return {**found, "driver": driver}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget", type=float, default=240)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("gpu_check.json"))
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 2) // 2)))
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    args.table = args.table or args.json.with_suffix(".md")
    if args.jobs < 1 or not 0 <= args.budget < float("inf"):
        parser.error(f"--jobs is {args.jobs}, must be 1 or more; --budget is {args.budget:g}, must be 0 or more")
    args.no_torch, args.burst = args.no_torch or args.quick, 0.05 if args.quick else 0.3
    try:
        gpu = find_gpu(HERE, args.device)
    except (Failure, OSError) as error:
        print(f"test_gpu: no GPU: {error}", file=sys.stderr)
        return 2
    for path in (args.json, args.table):  # before the minutes whose results they take
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            parser.error(f"`{path}` cannot be written: {error.strerror}")
    facts = Check(args, HERE).run(gpu)
    print(gpu_report.summary(facts))
    return gpu_report.exit_code(facts)


if __name__ == "__main__":
    sys.exit(main())
