"""A gateway: blobs up and down, workflows, and what is tried again."""

from __future__ import annotations

import hashlib
import os
import pathlib
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from quench._messages import messages
from quench._progress import Progress
from quench._wording import in_python
from quench.errors import ArgumentError, AuthenticationError, CancelledError, GatewayError, UnavailableError

CHUNK_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 16 << 20
# Uploads and downloads below this size show no bar.
SHOWN_BYTES = 8 << 20
# A larger upload may have been begun by an earlier run, which is worth a question.
RESUMED_BYTES = 8 << 20
# Between two questions, where the gateway has no place for a watcher.
POLL_SECONDS = 2.0
FLEETS = "quench.gateway.v1.Fleets"
WORKFLOWS = "quench.gateway.v1.Workflows"
BYTES = "google.bytestream.ByteStream"
# Nobody here cancels: a server or proxy broke the call off. Other codes pass only where RetryInfo says so.
PASSING_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def message(name: str) -> Any:
    return messages()(name)


def upload_id_of(digest: Any) -> str:
    """The same for the same bytes, as the program's: the next run goes on where one was that ended."""
    text = hashlib.sha256(f"quench upload  {digest.hash} {digest.size_bytes}".encode()).hexdigest()
    text = f"{text[:12]}8{text[13:16]}a{text[17:]}"  # RFC 9562: a version of our own making, and its variant
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def status_of(error: grpc.RpcError) -> Any:
    """The google.rpc.Status that every error of a gateway carries; made from code and message where one has none."""
    status_class = message("google.rpc.Status")
    trailer: Any = error.trailing_metadata() or ()
    for key, value in trailer:
        if key == "grpc-status-details-bin":
            return status_class.FromString(value)
    said = error.details() or ""
    # The message without what the library that resolves names says of its own insides.
    unresolved = re.match(r"DNS resolution failed for (\S+?)(:\d+)?(: |$)", said)
    return status_class(code=error.code().value[0], message=f"cannot resolve host `{unresolved[1]}`" if unresolved else said)


def detail(status: Any, name: str) -> Any:
    for packed in status.details:
        if packed.type_url.rpartition("/")[2] == name:
            return message(name).FromString(packed.value)
    return None


def error_of(status: Any) -> GatewayError:
    """The exception for a google.rpc.Status."""
    info = detail(status, "google.rpc.ErrorInfo")
    request = detail(status, "google.rpc.BadRequest")
    fields = {each.field: each.description for each in request.field_violations} if request is not None else {}
    names = {code.value[0]: code for code in grpc.StatusCode}
    code = names.get(status.code, grpc.StatusCode.UNKNOWN)
    kind = {grpc.StatusCode.UNAVAILABLE: UnavailableError, grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
            grpc.StatusCode.PERMISSION_DENIED: AuthenticationError, grpc.StatusCode.CANCELLED: CancelledError,
            grpc.StatusCode.INVALID_ARGUMENT: ArgumentError}.get(code, GatewayError)
    return kind(in_python(status.message), code.name, info.reason if info is not None else "", fields)


class Backoff:
    """Between the tries of one operation; gives up when `seconds` have brought nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.progressed()

    def progressed(self) -> None:
        self._deadline = time.monotonic() + self._seconds
        self._delay = 0.1

    def wait(self, error: grpc.RpcError) -> None:
        """Raises the error unless it is one that passes."""
        status = status_of(error)
        retry = detail(status, "google.rpc.RetryInfo")
        if error.code() not in PASSING_CODES and retry is None:
            raise error_of(status) from None
        delay = self._delay * random.uniform(0.5, 1)
        if retry is not None:
            delay = max(delay, retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9)
        if time.monotonic() + delay > self._deadline:
            raise error_of(status) from None
        time.sleep(delay)
        self._delay = min(2 * self._delay, 5)


def digest_of(path: pathlib.Path) -> Any:
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while data := file.read(CHUNK_BYTES):
            sha256.update(data)
        return message("build.bazel.remote.execution.v2.Digest")(hash=sha256.hexdigest(), size_bytes=file.tell())


class Gateway:
    """`patience`: seconds without progress after which a call is given up."""

    def __init__(self, channel: grpc.Channel, token: str | None, progress: bool | None, patience: float) -> None:
        self._channel = channel
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._progress = progress
        self._patience = patience
        self._methods: dict[str, Callable[..., Any]] = {}

    def close(self) -> None:
        self._channel.close()

    def _method(self, kind: str, service: str, name: str, reply: str) -> Callable[..., Any]:
        path = f"/{service}/{name}"
        if path not in self._methods:
            self._methods[path] = getattr(self._channel, kind)(
                path, request_serializer=lambda request: request.SerializeToString(), response_deserializer=message(reply).FromString)
        return self._methods[path]

    def call(self, service: str, name: str, request: Any, reply: str) -> Any:
        backoff, method = Backoff(self._patience), self._method("unary_unary", service, name, reply)
        while True:
            try:
                return method(request, metadata=self._metadata)
            except grpc.RpcError as error:
                backoff.wait(error)

    # ---- blobs ----

    def upload(self, path: str | os.PathLike[str]) -> Any:
        """The digest of the file, whose bytes are at the gateway then; it is asked first whether they are."""
        path = pathlib.Path(path)
        digest = digest_of(path)
        name = f"uploads/{upload_id_of(digest)}/blobs/{digest.hash}/{digest.size_bytes}"
        write = self._method("stream_unary", BYTES, "Write", "google.bytestream.WriteResponse")
        offset, backoff = 0, Backoff(self._patience)
        if digest.size_bytes >= RESUMED_BYTES:
            status = self._write_status(name)
            if status is None:
                name = f"uploads/{uuid.uuid4()}/blobs/{digest.hash}/{digest.size_bytes}"
            elif status.complete:
                return digest
            else:
                offset = status.committed_size
        begun = offset
        with Progress(f"upload {path.name}", digest.size_bytes, "B", self._progress if digest.size_bytes >= SHOWN_BYTES else False) as bar:
            while True:
                try:
                    requests = self._writes(path, name, offset, digest.size_bytes, bar)
                    if write(requests, metadata=self._metadata).committed_size == digest.size_bytes:
                        return digest
                except grpc.RpcError as error:
                    if begun > 0 and error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                        # The gateway kept other bytes than were sent, after a crash perhaps: once more from the start.
                        name, offset, begun = f"uploads/{uuid.uuid4()}/blobs/{digest.hash}/{digest.size_bytes}", 0, 0
                        continue
                    backoff.wait(error)
                status = self._write_status(name)
                if status is None:
                    offset = 0
                    continue
                if status.complete:
                    return digest
                if status.committed_size > offset:
                    backoff.progressed()
                offset = status.committed_size

    def _write_status(self, name: str) -> Any:
        """How far an upload is; None if the gateway knows of none."""
        try:
            return self.call(BYTES, "QueryWriteStatus", message("google.bytestream.QueryWriteStatusRequest")(resource_name=name),
                             "google.bytestream.QueryWriteStatusResponse")
        except GatewayError as error:
            if error.code in ("NOT_FOUND", "UNIMPLEMENTED"):
                return None
            raise

    @staticmethod
    def _writes(path: pathlib.Path, name: str, offset: int, size: int, bar: Progress) -> Iterator[Any]:
        request = message("google.bytestream.WriteRequest")
        with open(path, "rb") as file:
            file.seek(offset)
            while True:
                data = file.read(min(CHUNK_BYTES, size - offset))
                finish = offset + len(data) == size
                yield request(resource_name=name, write_offset=offset, data=data, finish_write=finish)
                offset += len(data)
                bar.update(offset)
                if finish:
                    return
                if not data:
                    raise OSError(f"`{path}` became shorter while it was read")

    def read(self, digest: Any, write: Callable[[bytes], Any]) -> None:
        """Gives the blob's bytes to `write`, in order, and checks that they are its."""
        name = f"blobs/{digest.hash}/{digest.size_bytes}"
        read = self._method("unary_stream", BYTES, "Read", "google.bytestream.ReadResponse")
        sha256, offset, backoff = hashlib.sha256(), 0, Backoff(self._patience)
        with Progress("download", digest.size_bytes, "B", self._progress if digest.size_bytes >= SHOWN_BYTES else False) as bar:
            while offset < digest.size_bytes:
                try:
                    request = message("google.bytestream.ReadRequest")(resource_name=name, read_offset=offset)
                    for response in read(request, metadata=self._metadata):
                        write(response.data)
                        sha256.update(response.data)
                        offset += len(response.data)
                        bar.update(offset)
                        backoff.progressed()
                    break
                except grpc.RpcError as error:
                    backoff.wait(error)
        if offset != digest.size_bytes or sha256.hexdigest() != digest.hash:
            raise GatewayError(f"a blob came with sha256 {sha256.hexdigest()}, {digest.hash} was asked for", "DATA_LOSS")

    def read_bytes(self, digest: Any) -> bytes:
        parts: list[bytes] = []
        self.read(digest, parts.append)
        return b"".join(parts)

    def download(self, digest: Any, path: str | os.PathLike[str]) -> None:
        """The file appears when it is whole and right."""
        path = pathlib.Path(path)
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        try:
            with open(part, "wb") as file:
                self.read(digest, file.write)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    # ---- workflows ----

    def progress(self, what: str) -> Progress:
        return Progress(what, 0, "step", self._progress)

    def create(self, spec: Any, request_id: str = "") -> str:
        """Safe to repeat: the same request_id gives the same workflow. Returns its name."""
        request = message("quench.gateway.v1.CreateWorkflowRequest")(request_id=request_id or str(uuid.uuid4()), spec=spec)
        operation = self.call(WORKFLOWS, "CreateWorkflow", request, "google.longrunning.Operation")
        return str(operation.name).replace("operations/", "workflows/", 1)

    def cancel(self, name: str) -> None:
        self.call(WORKFLOWS, "CancelWorkflow", message("quench.gateway.v1.CancelWorkflowRequest")(name=name),
                  "quench.gateway.v1.CancelWorkflowResponse")

    def watch(self, name: str) -> tuple[Any, dict[str, Any]]:
        """The workflow and its steps by name, once it has ended."""
        state = messages()
        final = {state.enum("quench.gateway.v1.State", f"STATE_{each}") for each in ("SUCCEEDED", "FAILED", "CANCELLED")}
        running = state.enum("quench.gateway.v1.State", "STATE_RUNNING")
        watch = self._method("unary_stream", WORKFLOWS, "WatchWorkflow", "quench.gateway.v1.WatchWorkflowEvent")
        workflow: Any = None
        steps: dict[str, Any] = {}
        revision, backoff = 0, Backoff(self._patience)
        with Progress("workflow", 0, "step", self._progress) as bar:
            while True:
                try:
                    request = message("quench.gateway.v1.WatchWorkflowRequest")(name=name, after_revision=revision)
                    for event in watch(request, metadata=self._metadata):
                        backoff.progressed()
                        revision = event.revision
                        if event.HasField("snapshot"):
                            workflow, steps = event.snapshot, {}
                            changed = event.snapshot.steps
                        else:
                            if event.change.HasField("workflow"):
                                workflow = event.change.workflow
                            changed = event.change.steps
                        steps.update((step.name, step) for step in changed)
                        now = next((step for step in steps.values() if step.state == running), None)
                        done = sum(step.state in final for step in steps.values())
                        bar.update(done, f"{now.name} {now.progress.stage}" if now is not None else "")
                    if workflow is not None and workflow.state in final:
                        return workflow, steps
                except grpc.RpcError as error:
                    if error_of(status_of(error)).reason != "SLOTS_FULL":
                        backoff.wait(error)
                        continue
                    # All places of watchers are taken, but the gateway is there: it is asked instead.
                    polled = self.get(name, basic=True)
                    if polled.state in final:
                        polled = self.get(name)
                        return polled, {step.name: step for step in self._steps_of(polled)}
                    backoff.progressed()
                    bar.update(polled.counts.succeeded, "")
                    time.sleep(POLL_SECONDS)

    def get(self, name: str, basic: bool = False) -> Any:
        view = messages().enum("quench.gateway.v1.WorkflowView", "WORKFLOW_VIEW_BASIC") if basic else 0
        request = message("quench.gateway.v1.GetWorkflowRequest")(name=name, view=view)
        return self.call(WORKFLOWS, "GetWorkflow", request, "quench.gateway.v1.GetWorkflowResponse").workflow

    def _steps_of(self, workflow: Any) -> Iterator[Any]:
        """All of them, also of a workflow that is larger than a message."""
        if not workflow.steps_truncated:
            yield from workflow.steps
            return
        token = ""
        while True:
            request = message("quench.gateway.v1.ListWorkflowStepsRequest")(name=workflow.name, page_token=token)
            page = self.call(WORKFLOWS, "ListWorkflowSteps", request, "quench.gateway.v1.ListWorkflowStepsResponse")
            yield from page.steps
            token = page.next_page_token
            if not token:
                return

    def run(self, spec: Any) -> dict[str, Any]:
        """Steps by name, of a workflow that has succeeded. Ctrl-C cancels it."""
        name, request_id = "", str(uuid.uuid4())
        try:
            name = self.create(spec, request_id)
            workflow, steps = self.watch(name)
        except KeyboardInterrupt:
            self.cancel(name or self.create(spec, request_id))  # which may have been created before its name came
            raise
        if workflow.state != messages().enum("quench.gateway.v1.State", "STATE_SUCCEEDED"):
            raise error_of(workflow.error)
        return steps
