"""Workflows at a gateway: many models, options and targets at once; watched, cancelled, run again."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from quench._compile_options import ROWS
from quench._gateway import WORKFLOWS, Gateway, error_of, message
from quench._library import encrypt
from quench._messages import messages
from quench._modules import is_module, upload_module
from quench._steps import Path, Target, element_type, fill_compile_options, fill_quantize_options, fill_target
from quench._uploads import Uploads
from quench._wording import check_names
from quench.errors import InputError, OutputExistsError
from quench.ir import IR

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
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


class Batches(Uploads):
    """Requests of a client for many models at once."""

    def compile_batch(self, models: Models, targets: Iterable[Target] = ("",), options: Optional[Mapping[str, Mapping[str, Any]]] = None,
                      *, load: Optional[Mapping[str, Any]] = None, title: str = "", fail_fast: bool = False) -> Workflow:
        """Every model with every set of options for every target, as one workflow.

        models: files or modules, by names or with names of their own. targets: as IR.compile takes them. options: sets by their names
        of what IR.compile takes (opt_level, set_float16, set_bfloat16, set_channel_layout and its `options`), with `batch`, and with
        `quantize`: what IR.quantize takes, with `data` and `images` as IR.calibrate takes them. load: of all models, `format`, `opset`, `shapes` and `dtypes`. fail_fast: one failure ends everything."""
        spec = message("quench.gateway.v1.WorkflowSpec")(title=title, fail_fast=fail_fast)
        batch = spec.compile
        _fill_models(self, batch, models, load or {})
        for target in targets:
            each = batch.targets.add()
            fill_target(each, target)
            if not isinstance(target, str) or " " in target:
                each.label = f"target{len(batch.targets)}"
        for name, chosen in (options or {"default": {}}).items():
            _fill_choice(self, batch.choices.add(name=name), dict(chosen))
        return Workflow(self.gateway, self.gateway.create(spec))

    def analyse_batch(self, models: Models, *, batch: int = 0, load: Optional[Mapping[str, Any]] = None, title: str = "") -> Workflow:
        """The reports of IR.analyse, for many models."""
        spec = message("quench.gateway.v1.WorkflowSpec")(title=title)
        spec.analyse.batch = batch
        _fill_models(self, spec.analyse, models, load or {})
        return Workflow(self.gateway, self.gateway.create(spec))

    def submit(self, spec: Union[str, Mapping[str, Any]]) -> Workflow:
        """A quench.gateway.v1.WorkflowSpec as JSON: whatever a gateway can do."""
        from google.protobuf import json_format

        filled = message("quench.gateway.v1.WorkflowSpec")()
        try:
            json_format.Parse(spec if isinstance(spec, str) else json.dumps(dict(spec)), filled)
        except json_format.ParseError as problem:
            raise InputError(f"this is not a quench.gateway.v1.WorkflowSpec: {problem}") from problem
        return Workflow(self.gateway, self.gateway.create(filled))

    def workflow(self, name: str) -> Workflow:
        """One that was started before, by its name or id."""
        return Workflow(self.gateway, name if name.startswith("workflows/") else f"workflows/{name}")

    def workflows(self, *states: str) -> Iterator[Workflow]:
        """All, newest first, or those in these states."""
        unknown = [each for each in states if each not in STATES]
        if unknown:
            raise InputError(f"there is no state `{unknown[0]}`, there are {', '.join(f'`{each}`' for each in STATES)}")
        numbers = [messages().enum("quench.gateway.v1.State", f"STATE_{each.upper()}") for each in states]
        token = ""
        while True:
            request = message("quench.gateway.v1.ListWorkflowsRequest")(page_token=token, states=numbers)
            page = self.gateway.call(WORKFLOWS, "ListWorkflows", request, "quench.gateway.v1.ListWorkflowsResponse")
            for each in page.workflows:
                yield Workflow(self.gateway, each.name)
            token = page.next_page_token
            if not token:
                return


def _fill_models(client: Uploads, batch: Any, models: Models, load: Mapping[str, Any]) -> None:
    unknown = [name for name in load if name not in ("format", "opset", "shapes", "dtypes")]
    if unknown:
        raise InputError(f"load has no `{unknown[0]}`: batches take `format`, `opset`, `shapes` and `dtypes`")
    if isinstance(models, Mapping):
        pairs = list(models.items())
    else:
        pairs = [(each.name if isinstance(each, IR) else pathlib.Path(each).stem, each) for each in models]
    for name, each in pairs:
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
