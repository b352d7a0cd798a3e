"""Workflows at a gateway: many models, options and targets at once; watched, cancelled, run again."""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from quench._compile_options import ROWS
from quench._gateway import FLEETS, POLL_SECONDS, WORKFLOWS, Gateway, digest_of, error_of, message
from quench._library import encrypt
from quench._messages import messages
from quench._modules import is_module, upload_module
from quench._steps import Path, Target, element_type, fill_compile_options, fill_quantize_options, fill_target
from quench._uploads import Uploads
from quench._wording import check_names
from quench.errors import GatewayError, InputError, OutputExistsError
from quench.ir import IR

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
# As `quench fleet compile` has it: the same models and options make the same workflows.
CELLS_OF_A_SHARD = 256
# Between two questions of a fleet that waits for its tenant's limit.
ASK_AGAIN_SECONDS = 5.0
# How long a fleet whose caller has gone before all of it was asked for is waited for, once nothing runs.
STRANDED_SECONDS = 120.0
# Names that an error lists.
SHOWN_CELLS = 20
Models = Union[Mapping[str, Union[Path, IR]], Sequence[Union[Path, IR]]]


def _state(number: int) -> str:
    return next((name for name in STATES if messages().enum("quench.gateway.v1.State", f"STATE_{name.upper()}") == number), "unknown")


class Workflow:
    """Work at a gateway, which goes on whether anybody watches or not."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway, self.name = gateway, name

    def __repr__(self) -> str:
        return f"<quench.Workflow {self.name}>"

    def _ask(self, verb: str) -> Any:
        return self._gateway.call(WORKFLOWS, f"{verb}Workflow", message(f"quench.gateway.v1.{verb}WorkflowRequest")(name=self.name),
                                  f"quench.gateway.v1.{verb}WorkflowResponse")

    def _steps(self) -> list[Any]:
        """All of them: of many, a workflow's own message leaves some out."""
        found: list[Any] = []
        token = ""
        while True:
            request = message("quench.gateway.v1.ListWorkflowStepsRequest")(name=self.name, page_token=token)
            page = self._gateway.call(WORKFLOWS, "ListWorkflowSteps", request, "quench.gateway.v1.ListWorkflowStepsResponse")
            found += page.steps
            token = page.next_page_token
            if not token:
                return found

    @property
    def state(self) -> str:
        """`queued`, `running`, `succeeded`, `failed` or `cancelled`."""
        return _state(self._ask("Get").workflow.state)

    @property
    def steps(self) -> dict[str, str]:
        """States by the names of steps."""
        return {step.name: _state(step.state) for step in self._steps()}

    @property
    def errors(self) -> dict[str, str]:
        """Sentences by the names of steps that failed."""
        return {step.name: step.error.message for step in self._steps() if _state(step.state) == "failed"}

    def watch(self) -> Workflow:
        """Until it has ended, with a bar or lines; raises what it failed with. Ctrl-C ends the watching alone."""
        workflow, _ = self._gateway.watch(self.name)
        if _state(workflow.state) != "succeeded":
            raise error_of(workflow.error)
        return self

    def cancel(self) -> None:
        self._ask("Cancel")

    def retry(self) -> Workflow:
        """Runs again what failed or was cancelled, and what depends on it."""
        self._ask("Retry")
        return self

    def delete(self) -> None:
        """Forgets one that has ended."""
        self._ask("Delete")

    def download(self, folder: Path, *, encrypt_password: Optional[str] = None, force_overwrite: bool = False) -> list[pathlib.Path]:
        """Downloads what has succeeded: FOLDER/MODEL/OPTIONS/TARGET/model.so and model.h of a batch, FOLDER/MODEL/report.json of an analysis;
        returns the paths of libraries and reports. Libraries are encrypted as by IR.compile."""
        root = pathlib.Path(folder)
        made = {step.name: {output.name: output.digest for output in step.outputs} for step in self._steps()
                if _state(step.state) == "succeeded"}
        wanted: list[tuple[pathlib.Path, Any]] = []
        for name, outputs in made.items():
            parent, _, kind = name.rpartition("/")
            _below(root, name)
            if kind == "package" or (kind == "compile" and f"{parent}/package" not in made):
                wanted += [(root / parent / "model.so", outputs["library"]), (root / parent / "model.h", outputs["header"])]
            elif kind == "analyse":
                wanted.append((root / parent / "report.json", outputs["report_json"]))
        taken = [path for path, _ in wanted if path.exists()]
        if taken and not force_overwrite:
            raise OutputExistsError(f"`{taken[0]}` exists; force_overwrite=True replaces it")
        for path, digest in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.name == "model.so" and encrypt_password is not None:
                encrypt(self._gateway.read_bytes(digest), path, path.with_name("modelKey.bin"), encrypt_password, None)
            else:
                if path in taken and path.name == "model.so":
                    path.with_name("modelKey.bin").unlink(missing_ok=True)  # of the library that was there
                self._gateway.download(digest, path)
        return [path for path, _ in wanted if path.name != "model.h"]


class Cell(NamedTuple):
    """The result of one model with one set of options for one target."""

    model: str
    options: str
    target: str
    state: str
    seconds: float
    bytes: int
    cached: bool
    error: str
    workflow: str


class Fleet:
    """Workflows that were asked for together; they go on whether anybody watches or not."""

    def __init__(self, gateway: Gateway, request_id: str) -> None:
        self._gateway, self.id = gateway, request_id

    def __repr__(self) -> str:
        return f"<quench.Fleet {self.id}>"

    def _ask(self, verb: str, **fields: Any) -> Any:
        name = f"quench.gateway.v1.{verb}"
        return self._gateway.call(FLEETS, verb, message(f"{name}Request")(id=self.id, **fields), f"{name}Response")

    def _moving(self) -> Any:
        """The fleet, if some of it is queued or running."""
        try:
            fleet = self._ask("GetFleet").fleet
        except GatewayError:
            return None
        return fleet if fleet.workflows.queued + fleet.workflows.running > 0 else None

    def _within_limits(self, ask: Callable[[], Any]) -> None:
        """Asks; where this fleet has reached its tenant's limit, again and again until enough of it has ended."""
        idle = False
        bar: Any = None
        with contextlib.ExitStack() as shown:
            while True:
                try:
                    ask()
                    return
                except GatewayError as error:
                    if error.reason != "QUOTA_EXCEEDED" or idle:
                        raise
                moving = self._moving()
                idle = moving is None  # the last of it may have ended since the refusal: once more
                if moving is not None:
                    bar = bar or shown.enter_context(self._gateway.progress("fleet"))
                    steps = moving.steps
                    bar.update(steps.succeeded + steps.failed + steps.cancelled, "waits for the tenant's limit")
                    time.sleep(ASK_AGAIN_SECONDS)

    @property
    def exists(self) -> bool:
        try:
            self._ask("GetFleet")
        except GatewayError as error:
            if error.code == "NOT_FOUND":
                return False
            raise
        return True

    @property
    def state(self) -> str:
        """`queued`, `running`, `succeeded`, `failed` or `cancelled`; one of the last three once all of it has ended."""
        return _state(self._ask("GetFleet").fleet.state)

    def _cells(self) -> Iterator[Any]:
        token = ""
        while True:
            page = self._ask("ListFleetCells", page_token=token)
            yield from page.cells
            token = page.next_page_token
            if not token:
                return

    def cells(self) -> Iterator[Cell]:
        """As they are now, in the order of models, options and targets."""
        for cell in self._cells():
            yield Cell(cell.model, cell.options, cell.target, _state(cell.state), cell.seconds, cell.library_bytes, cell.cached,
                       cell.error.message, cell.workflow)

    def watch(self) -> Fleet:
        """Until it has ended, with a bar or lines; raises GatewayError if not all of it has succeeded, or if what was asked for has ended
        and nobody asks for the rest. Ctrl-C ends the watching alone."""
        moved = time.monotonic()
        with self._gateway.progress("fleet") as bar:
            while True:
                fleet = self._ask("GetFleet").fleet
                steps = fleet.steps
                bar.update(steps.succeeded + steps.failed + steps.cancelled, f"{steps.running} running, {steps.failed} failed")
                if _state(fleet.state) in ("succeeded", "failed", "cancelled"):
                    break
                now = time.monotonic()
                if fleet.workflows.queued + fleet.workflows.running > 0:
                    moved = now
                if now - moved > STRANDED_SECONDS:
                    raise GatewayError(f"{fleet.created_shards} of {fleet.shards} parts of fleet `{self.id}` were asked for, and those have "
                                       f"ended: compile_fleet with request_id={self.id!r} and the same models asks for the others",
                                       "FAILED_PRECONDITION")
                time.sleep(POLL_SECONDS)
        if _state(fleet.state) == "succeeded":
            return self
        first = next((cell for cell in self.cells() if cell.state != "succeeded"), None)
        why = f", the first: {first.model}/{first.options}/{first.target}: {first.error or first.state}" if first else ""
        raise GatewayError(f"fleet `{self.id}` has {_state(fleet.state)} cells{why}", "FLEET_FAILED")

    def download(self, folder: Path) -> list[pathlib.Path]:
        """Downloads what has succeeded to FOLDER/MODEL/OPTIONS/TARGET/model.so and model.h; files that hold the same bytes stay. Returns
        the paths of the libraries. Raises GatewayError if the gateway has some no more, once the others are there."""
        made: list[pathlib.Path] = []
        lost: list[tuple[str, GatewayError]] = []
        for cell in self._cells():
            outputs = {output.name: output.digest for output in cell.outputs}
            if _state(cell.state) != "succeeded" or "library" not in outputs:
                continue
            place = f"{cell.model}/{cell.options}/{cell.target}"
            parent = _below(folder, place)
            parent.mkdir(parents=True, exist_ok=True)
            try:
                for name, digest in ((parent / "model.so", outputs["library"]), (parent / "model.h", outputs["header"])):
                    if not (name.exists() and name.stat().st_size == digest.size_bytes and digest_of(name).hash == digest.hash):
                        self._gateway.download(digest, name)
            except GatewayError as error:
                if error.code not in ("NOT_FOUND", "FAILED_PRECONDITION"):
                    raise
                lost.append((place, error))  # evicted, or with outputs that are kept no longer
                continue
            made.append(parent / "model.so")
        if lost:
            names = ", ".join(f"`{place}`" for place, _ in lost[:SHOWN_CELLS])
            more = f" and {len(lost) - SHOWN_CELLS} more" if len(lost) > SHOWN_CELLS else ""
            first = lost[0][1]
            raise GatewayError(f"libraries of fleet `{self.id}` cannot be fetched: {names}{more}; the first: {first}", first.code, first.reason)
        return made

    def cancel(self) -> int:
        """Cancels what has not ended; returns the number of its workflows."""
        return int(self._ask("CancelFleet").cancelled)

    def retry(self) -> int:
        """Runs again what failed or was cancelled; returns the number of its workflows."""
        return int(self._ask("RetryFleet").retried)


class Batches(Uploads):
    """Requests of a client for many models at once."""

    def compile_batch(self, models: Models, targets: Iterable[Target] = ("",), options: Optional[Mapping[str, Mapping[str, Any]]] = None,
                      *, load: Optional[Mapping[str, Any]] = None, title: str = "", fail_fast: bool = False, request_id: str = "",
                      labels: Optional[Mapping[str, str]] = None, priority: int = 0) -> Workflow:
        """Every model with every set of options for every target, as one workflow.

        models: files or modules, by names or with names of their own. targets: as IR.compile takes them. options: sets by their names
        of what IR.compile takes (opt_level, set_float16, set_bfloat16, set_channel_layout and its `options`), with `batch`, and with
        `quantize`: what IR.quantize takes, with `data` and `images` as IR.calibrate takes them. load: of all models, `format`, `opset`, `shapes` and `dtypes`. fail_fast: one failure ends everything. request_id makes the call safe to repeat: the same again is the same workflow. labels: for `workflows(filter=...)`. priority: higher ones run first."""
        spec = message("quench.gateway.v1.WorkflowSpec")(title=title, fail_fast=fail_fast, labels=labels or {}, priority=priority)
        _fill_models(self, spec.compile, models, load or {})
        _fill_choices(self, spec.compile, targets, options)
        return Workflow(self.gateway, self.gateway.create(spec, request_id))

    def compile_fleet(self, models: Models, targets: Iterable[Target] = ("",), options: Optional[Mapping[str, Mapping[str, Any]]] = None, *,
                      request_id: str, load: Optional[Mapping[str, Any]] = None, labels: Optional[Mapping[str, str]] = None,
                      priority: int = -10, webhooks: Iterable[str] = ()) -> Fleet:
        """compile_batch for any number of models, as workflows of one fleet, which `request_id` names: the same call again starts
        nothing that is done, and runs again what has failed. Waits while the fleet has reached its tenant's limit. webhooks: URLs that
        are told when it ends."""
        spec = message("quench.gateway.v1.WorkflowSpec")(labels=labels or {}, priority=priority)
        _fill_choices(self, spec.compile, targets, options)
        for url in webhooks:
            spec.webhooks.add(url=url)
        pairs = _named(models)
        twice = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1}) if len(dict(pairs)) < len(pairs) else []
        if twice:
            raise InputError(f"several models are called `{twice[0]}`: give them names, as in {{'name': path}}")
        of_a_shard = max(1, CELLS_OF_A_SHARD // (len(spec.compile.choices) * max(1, len(spec.compile.targets))))
        parts = [dict(pairs[start:start + of_a_shard]) for start in range(0, len(pairs), of_a_shard)]
        if not parts:
            raise InputError("a fleet needs at least one model")
        fleet = Fleet(self.gateway, request_id)
        existed = fleet.exists
        for number, part in enumerate(parts):
            shard = message("quench.gateway.v1.WorkflowSpec")()
            shard.CopyFrom(spec)
            shard.title = f"fleet {request_id} {number + 1}/{len(parts)}"
            shard.fleet.fleet, shard.fleet.shard, shard.fleet.shards = request_id, number, len(parts)
            _fill_models(self, shard.compile, part, load or {})
            fleet._within_limits(functools.partial(self.gateway.create, shard, f"{request_id}/{number}"))
        if existed:
            fleet._within_limits(fleet.retry)
        return fleet

    def fleet(self, request_id: str) -> Fleet:
        """One that was asked for before, by `compile_fleet` or `quench fleet compile`."""
        return Fleet(self.gateway, request_id)

    def analyse_batch(self, models: Models, *, batch: int = 0, load: Optional[Mapping[str, Any]] = None, title: str = "", request_id: str = "",
                      labels: Optional[Mapping[str, str]] = None) -> Workflow:
        """The reports of IR.analyse, for many models."""
        spec = message("quench.gateway.v1.WorkflowSpec")(title=title, labels=labels or {})
        spec.analyse.batch = batch
        _fill_models(self, spec.analyse, models, load or {})
        return Workflow(self.gateway, self.gateway.create(spec, request_id))

    def submit(self, spec: Union[str, Mapping[str, Any]], *, request_id: str = "") -> Workflow:
        """A quench.gateway.v1.WorkflowSpec as JSON: whatever a gateway can do."""
        from google.protobuf import json_format

        filled = message("quench.gateway.v1.WorkflowSpec")()
        try:
            json_format.Parse(spec if isinstance(spec, str) else json.dumps(dict(spec)), filled)
        except json_format.ParseError as problem:
            raise InputError(f"this is not a quench.gateway.v1.WorkflowSpec: {problem}") from problem
        return Workflow(self.gateway, self.gateway.create(filled, request_id))

    def workflow(self, name: str) -> Workflow:
        """One that was started before, by its name or id."""
        return Workflow(self.gateway, name if name.startswith("workflows/") else f"workflows/{name}")

    def workflows(self, *states: str, filter: str = "", order_by: str = "") -> Iterator[Workflow]:
        """All, newest first, or those in these states that meet the filter's conditions: `labels.team = vision AND title = "night*"`.
        order_by: `create_time` or `end_time`, then `desc` for newest first."""
        unknown = [each for each in states if each not in STATES]
        if unknown:
            raise InputError(f"there is no state `{unknown[0]}`, there are {', '.join(f'`{each}`' for each in STATES)}")
        numbers = [messages().enum("quench.gateway.v1.State", f"STATE_{each.upper()}") for each in states]
        token = ""
        while True:
            request = message("quench.gateway.v1.ListWorkflowsRequest")(page_token=token, states=numbers, filter=filter, order_by=order_by)
            page = self.gateway.call(WORKFLOWS, "ListWorkflows", request, "quench.gateway.v1.ListWorkflowsResponse")
            for each in page.workflows:
                yield Workflow(self.gateway, each.name)
            token = page.next_page_token
            if not token:
                return


def _below(folder: Path, name: str) -> pathlib.Path:
    """The path of a name that somebody else has chosen, which may not lead out of the folder."""
    if name.startswith("/") or ".." in name.split("/"):
        raise GatewayError(f"`{name}` leads out of `{folder}`", "INVALID_REQUEST")
    return pathlib.Path(folder) / name


def _named(models: Models) -> list[tuple[str, Union[Path, IR]]]:
    if isinstance(models, Mapping):
        return list(models.items())
    return [(each.name if isinstance(each, IR) else pathlib.Path(each).stem, each) for each in models]


def _fill_choices(client: Uploads, batch: Any, targets: Iterable[Target], options: Optional[Mapping[str, Mapping[str, Any]]]) -> None:
    for target in targets:
        each = batch.targets.add()
        fill_target(each, target)
        if not isinstance(target, str) or " " in target:
            each.label = f"target{len(batch.targets)}"
    for name, chosen in (options or {"default": {}}).items():
        _fill_choice(client, batch.choices.add(name=name), dict(chosen))


def _fill_models(client: Uploads, batch: Any, models: Models, load: Mapping[str, Any]) -> None:
    unknown = [name for name in load if name not in ("format", "opset", "shapes", "dtypes")]
    if unknown:
        raise InputError(f"load has no `{unknown[0]}`: batches take `format`, `opset`, `shapes` and `dtypes`")
    for name, each in _named(models):
        entry = batch.models.add(name=name)
        if isinstance(each, IR):
            entry.module.CopyFrom(each._module)
            continue
        if is_module(pathlib.Path(each)):
            entry.module.CopyFrom(upload_module(client, pathlib.Path(each)))
            continue
        client._fill_model(entry.model, pathlib.Path(each), ())
        entry.import_options.format, entry.import_options.opset = load.get("format", ""), load.get("opset", 0)
        for taken, shape in load.get("shapes", {}).items():
            entry.import_options.shapes.add(input=taken, dims=list(shape))
        for taken, dtype in load.get("dtypes", {}).items():
            entry.import_options.types.add(input=taken, element_type=element_type(f"input `{taken}`", dtype))


def _fill_choice(client: Uploads, choice: Any, chosen: dict[str, Any]) -> None:
    quantize = chosen.pop("quantize", None)
    choice.passes.batch = chosen.pop("batch", 0)
    choice.passes.float16 = chosen.pop("set_float16", False)
    choice.passes.bfloat16 = chosen.pop("set_bfloat16", False)
    check_names("compile_batch", chosen, ROWS.keys() - {"emit"})  # Workflow.download knows shared libraries alone
    fill_compile_options(choice.compile_options, chosen)
    if quantize is None:
        return
    how = dict(quantize)
    data, images = how.pop("data", None), how.pop("images", "")
    fill_quantize_options(choice.quantize.options, **how)
    if data is not None:
        client._fill_samples(choice.quantize.calibrate.samples, data, images)
