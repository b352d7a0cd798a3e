#!/usr/bin/env python3
"""Compiles a model through a Quench gateway: writes OUTPUT_DIR/model.so and OUTPUT_DIR/model.h.

The stubs are generated into ./gen: see ../README.md.
"""

import argparse
import ast
import hashlib
import pathlib
import random
import sys
import tempfile
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gen"))

import grpc
from build.bazel.remote.execution.v2 import remote_execution_pb2 as reapi
from google.bytestream import bytestream_pb2 as bytestream
from google.bytestream import bytestream_pb2_grpc as bytestream_grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from quench.gateway.v1 import samples_pb2, samples_pb2_grpc
from quench.gateway.v1 import workflows_pb2 as gateway
from quench.gateway.v1 import workflows_pb2_grpc as gateway_grpc
from quench.ir.v1 import module_pb2 as ir
from quench.step.v1 import step_pb2

CHUNK_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 16 << 20
RETRY_SECONDS = 60
# Nobody here cancels: a server or proxy broke the call off. Other codes pass only where RetryInfo says so.
PASSING_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
FINAL_STATES = (gateway.STATE_SUCCEEDED, gateway.STATE_FAILED, gateway.STATE_CANCELLED)


class Failure(Exception):
    """Nothing that another try would change; holds a google.rpc.Status."""

    def __init__(self, status):
        super().__init__(status.message)
        self.status = status


def status_of(error):
    """The google.rpc.Status that every error of a gateway carries; made from code and message where one has none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return status_pb2.Status.FromString(value)
    return status_pb2.Status(code=error.code().value[0], message=error.details() or "")


def detail(status, message_type):
    for packed in status.details:
        message = message_type()
        if packed.Unpack(message):
            return message
    return None


def print_error(status):
    print(f"client: {code_pb2.Code.Name(status.code)}: {status.message}", file=sys.stderr)
    if info := detail(status, error_details_pb2.ErrorInfo):
        print(f"  reason: {info.reason}", file=sys.stderr)
    if bad_request := detail(status, error_details_pb2.BadRequest):
        for violation in bad_request.field_violations:
            print(f"  field: {violation.field}: {violation.description}", file=sys.stderr)


class Backoff:
    """Between the tries of one operation; gives up when a minute has brought nothing."""

    def __init__(self):
        self.progressed()

    def progressed(self):
        self.deadline = time.monotonic() + RETRY_SECONDS
        self.delay = 0.1

    def wait(self, error, what):
        """Raises Failure unless the error is one that passes."""
        status = status_of(error)
        retry_info = detail(status, error_details_pb2.RetryInfo)
        if error.code() not in PASSING_CODES and retry_info is None:
            raise Failure(status)
        delay = self.delay * random.uniform(0.5, 1)
        if retry_info is not None:
            delay = max(delay, retry_info.retry_delay.ToTimedelta().total_seconds())
        if time.monotonic() + delay > self.deadline:
            raise Failure(status)
        print(f"{error.code().name}: {status.message}; {what} in {delay:.1f} s", file=sys.stderr)
        time.sleep(delay)
        self.delay = min(2 * self.delay, 5)


class Client:
    def __init__(self, channel, token=None):
        self.bytes = bytestream_grpc.ByteStreamStub(channel)
        self.samples = samples_pb2_grpc.SamplesStub(channel)
        self.workflows = gateway_grpc.WorkflowsStub(channel)
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, method, request):
        backoff = Backoff()
        while True:
            try:
                return method(request, metadata=self.metadata)
            except grpc.RpcError as error:
                backoff.wait(error, "asking again")

    def upload(self, path, digest, break_once=False):
        """Does nothing more than ask where the gateway has the blob already."""
        name = f"uploads/{uuid.uuid4()}/blobs/{digest.hash}/{digest.size_bytes}"
        offset, backoff = 0, Backoff()
        end = digest.size_bytes // 2 if break_once else digest.size_bytes
        while True:
            try:
                chunks = write_requests(path, name, offset, end, digest.size_bytes)
                if self.bytes.Write(chunks, metadata=self.metadata).committed_size == digest.size_bytes:
                    return
            except grpc.RpcError as error:
                backoff.wait(error, "resuming the upload")
            end = digest.size_bytes
            status = self.call(self.bytes.QueryWriteStatus, bytestream.QueryWriteStatusRequest(resource_name=name))
            if status.complete:
                return
            if status.committed_size > offset:
                backoff.progressed()
            offset = status.committed_size
            print(f"upload resumes at {offset} of {digest.size_bytes} bytes", file=sys.stderr)

    def upload_manifest(self, paths):
        """Files of samples, and the blob that names them, whose digest is returned."""
        manifest = step_pb2.SampleManifest()
        for path in paths:
            manifest.files.add(path=path.name, digest=digest_of(path))
            self.upload(path, manifest.files[-1].digest)
        with tempfile.TemporaryDirectory() as folder:
            blob = pathlib.Path(folder) / "manifest"
            blob.write_bytes(manifest.SerializeToString(deterministic=True))
            digest = digest_of(blob)
            self.upload(blob, digest)
        return digest

    def stream_samples(self, tensors):
        """Tensors that never were files: (sample, input, dims, bytes of f32) each. Returns what Calibrate takes."""
        return self.samples.UploadSamples(sample_requests(tensors), metadata=self.metadata).manifest

    def create(self, spec):
        """Safe to repeat: the same request_id gives the same workflow. Returns its name."""
        request = gateway.CreateWorkflowRequest(request_id=str(uuid.uuid4()), spec=spec)
        operation = self.call(self.workflows.CreateWorkflow, request)
        return operation.name.replace("operations/", "workflows/", 1)

    def watch(self, name):
        """The workflow and its steps by name, once it has ended."""
        workflow, steps, revision, backoff = None, {}, 0, Backoff()
        while True:
            try:
                request = gateway.WatchWorkflowRequest(name=name, after_revision=revision)
                for event in self.workflows.WatchWorkflow(request, metadata=self.metadata):
                    backoff.progressed()
                    revision = event.revision
                    if event.HasField("snapshot"):
                        workflow, steps = event.snapshot, {}
                        changed = event.snapshot.steps
                    else:
                        if event.change.HasField("workflow"):
                            workflow = event.change.workflow
                        changed = event.change.steps
                    for step in changed:
                        steps[step.name] = step
                        print_step(step)
                if workflow is not None and workflow.state in FINAL_STATES:
                    return workflow, steps
            except grpc.RpcError as error:
                backoff.wait(error, f"watching again after revision {revision}")

    def download(self, digest, path):
        """The file appears when it is whole and right."""
        name = f"blobs/{digest.hash}/{digest.size_bytes}"
        part = path.with_name(path.name + ".part")
        sha256, offset, backoff = hashlib.sha256(), 0, Backoff()
        with open(part, "wb") as file:
            while offset < digest.size_bytes:
                try:
                    request = bytestream.ReadRequest(resource_name=name, read_offset=offset)
                    for response in self.bytes.Read(request, metadata=self.metadata):
                        file.write(response.data)
                        sha256.update(response.data)
                        offset += len(response.data)
                        backoff.progressed()
                    break
                except grpc.RpcError as error:
                    backoff.wait(error, f"reading on from byte {offset}")
        if offset != digest.size_bytes or sha256.hexdigest() != digest.hash:
            message = f"`{path.name}` came with sha256 {sha256.hexdigest()}, {digest.hash} was asked for"
            raise Failure(status_pb2.Status(code=code_pb2.DATA_LOSS, message=message))
        part.rename(path)


def write_requests(path, name, offset, end, size):
    """The bytes from `offset` to `end`; without `finish_write` where that is not the blob's end."""
    with open(path, "rb") as file:
        file.seek(offset)
        while True:
            data = file.read(min(CHUNK_BYTES, end - offset))
            finish = offset + len(data) == size
            yield bytestream.WriteRequest(resource_name=name, write_offset=offset, data=data, finish_write=finish)
            offset += len(data)
            if offset == end:
                return
            if not data:
                raise OSError(f"`{path}` became shorter while it was read")


def sample_requests(tensors):
    for sample, name, dims, data in tensors:
        begin = samples_pb2.SampleTensor(sample=sample, input=name, type=ir.ELEMENT_TYPE_F32, dims=dims)
        yield samples_pb2.UploadSamplesRequest(tensor=begin, data=data[:CHUNK_BYTES])
        for offset in range(CHUNK_BYTES, len(data), CHUNK_BYTES):
            yield samples_pb2.UploadSamplesRequest(data=data[offset : offset + CHUNK_BYTES])


def rows_of(path):
    """Each row of a .npy of f32 as a sample of a model with one input; `input_0` is the first input of any model."""
    content = path.read_bytes()
    length = int.from_bytes(content[8:10], "little")
    header = ast.literal_eval(content[10 : 10 + length].decode()) if content[:8] == b"\x93NUMPY\x01\x00" else {}
    if header.get("descr") != "<f4" or header["fortran_order"] or not header["shape"] or header["shape"][0] == 0:
        raise OSError(f"`{path}` is no .npy of rows of f32")
    count, *row = header["shape"]
    data = content[10 + length :]
    size = len(data) // count
    return [(i, "input_0", [1, *row], data[i * size : (i + 1) * size]) for i in range(count)]


def print_step(step):
    text = gateway.State.Name(step.state).removeprefix("STATE_").lower()
    if step.cache_hit:
        text += ", cached"
    if step.state == gateway.STATE_RUNNING and step.HasField("progress"):
        of = f" of {step.progress.total}" if step.progress.total else ""
        text += f", {step.progress.stage} {step.progress.done}{of}"
    print(f"{step.name}: {text}", file=sys.stderr)


def digest_of(path, sha256=None):
    if sha256 is None:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return reapi.Digest(hash=sha256, size_bytes=path.stat().st_size)


def compile_spec(model, digest, target, samples=None):
    """One cell of a batch: its steps are `model/import`, `model/default/transform` and `model/default/{target}/compile`.

    With a manifest of samples (its digest), layers compute in 8-bit integers, whose ranges are taken from those.
    """
    spec = gateway.WorkflowSpec(title=f"compile {model.name}")
    entry = spec.compile.models.add(name="model")
    entry.model.file.CopyFrom(digest)
    entry.model.name = model.name
    choice = spec.compile.choices.add(name="default")
    if samples is not None:
        choice.quantize.options.per_channel = True
        choice.quantize.calibrate.samples.manifest.CopyFrom(samples)
    spec.compile.targets.add(name=target)
    return spec


def compile_model(client, arguments):
    digest = digest_of(arguments.model, arguments.sha256)
    client.upload(arguments.model, digest, arguments.break_upload)
    samples = None
    if arguments.quantize is not None:
        if arguments.stream:
            samples = client.stream_samples(rows_of(arguments.quantize))
        else:
            samples = client.upload_manifest([arguments.quantize])
    name = client.create(compile_spec(arguments.model, digest, arguments.target, samples))
    print(name, file=sys.stderr)
    workflow, steps = client.watch(name)
    if workflow.state != gateway.STATE_SUCCEEDED:
        raise Failure(workflow.error)
    outputs = {output.name: output.digest for output in steps[f"model/default/{arguments.target}/compile"].outputs}
    arguments.output.mkdir(parents=True, exist_ok=True)
    client.download(outputs["library"], arguments.output / "model.so")
    client.download(outputs["header"], arguments.output / "model.h")


def open_channel(arguments):
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.keepalive_time_ms", 60_000)]
    if arguments.ca is None:
        return grpc.insecure_channel(arguments.gateway, options)
    return grpc.secure_channel(arguments.gateway, grpc.ssl_channel_credentials(arguments.ca.read_bytes()), options)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="client", description=__doc__.splitlines()[0])
    parser.add_argument("--gateway", required=True, metavar="HOST:PORT")
    parser.add_argument("--ca", type=pathlib.Path, metavar="FILE", help="PEM of who signs the gateway's certificate; absent: plain text")
    parser.add_argument("--token-file", type=pathlib.Path, metavar="FILE", help="holds a bearer token")
    parser.add_argument("--target", default="x86-64-v3", metavar="NAME")
    parser.add_argument("--quantize", type=pathlib.Path, metavar="SAMPLES.npy", help="compute in 8-bit integers, calibrated on these")
    parser.add_argument("--stream", action="store_true", help="send those samples as tensors, not as a file")
    parser.add_argument("--sha256", metavar="HEX", help="of MODEL, where it is known already")
    parser.add_argument("--break-upload", action="store_true", help="for tests: the upload stops half way once, and resumes")
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL")
    parser.add_argument("output", type=pathlib.Path, metavar="OUTPUT_DIR")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    try:
        token = arguments.token_file.read_text().strip() if arguments.token_file else None
        with open_channel(arguments) as channel:
            compile_model(Client(channel, token), arguments)
    except Failure as failure:
        print_error(failure.status)
        return 1
    except OSError as error:
        print(f"client: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
