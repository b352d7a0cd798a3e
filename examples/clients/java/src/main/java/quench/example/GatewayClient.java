package quench.example;

import build.bazel.remote.execution.v2.Digest;
import com.google.bytestream.ByteStreamGrpc;
import com.google.bytestream.ByteStreamProto.QueryWriteStatusRequest;
import com.google.bytestream.ByteStreamProto.QueryWriteStatusResponse;
import com.google.bytestream.ByteStreamProto.ReadRequest;
import com.google.bytestream.ByteStreamProto.ReadResponse;
import com.google.rpc.Code;
import com.google.rpc.Status;
import io.grpc.Channel;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import quench.gateway.v1.WorkflowsGrpc;
import quench.gateway.v1.CreateWorkflowRequest;
import quench.gateway.v1.State;
import quench.gateway.v1.Step;
import quench.gateway.v1.WatchWorkflowEvent;
import quench.gateway.v1.WatchWorkflowRequest;
import quench.gateway.v1.Workflow;
import quench.gateway.v1.WorkflowSpec;

/** What a gateway is asked, each with the tries that it may take. */
final class GatewayClient {
  private final ByteStreamGrpc.ByteStreamStub writes;
  private final ByteStreamGrpc.ByteStreamBlockingStub bytes;
  private final WorkflowsGrpc.WorkflowsBlockingStub workflows;

  GatewayClient(Channel channel) {
    writes = ByteStreamGrpc.newStub(channel);
    bytes = ByteStreamGrpc.newBlockingStub(channel);
    workflows = WorkflowsGrpc.newBlockingStub(channel);
  }

  /** Does nothing more than ask where the gateway has the blob already. */
  void upload(Path path, Digest digest, boolean breakOnce) throws Failure, IOException, InterruptedException {
    long size = digest.getSizeBytes();
    String name = "uploads/" + UUID.randomUUID() + "/blobs/" + digest.getHash() + "/" + size;
    var query = QueryWriteStatusRequest.newBuilder().setResourceName(name).build();
    Backoff backoff = new Backoff();
    long offset = 0;
    long end = breakOnce ? size / 2 : size;
    while (true) {
      try {
        if (Upload.write(writes, path, name, offset, end, size) == size) return;
      } catch (StatusRuntimeException error) {
        backoff.await(error, "resuming the upload");
      }
      end = size;
      QueryWriteStatusResponse status = Backoff.retrying(() -> bytes.queryWriteStatus(query));
      if (status.getComplete()) return;
      if (status.getCommittedSize() > offset) backoff.progressed();
      offset = status.getCommittedSize();
      System.err.printf("upload resumes at %d of %d bytes%n", offset, size);
    }
  }

  /** Safe to repeat: the same request_id gives the same workflow. Returns its name. */
  String create(WorkflowSpec spec) throws Failure, InterruptedException {
    var request = CreateWorkflowRequest.newBuilder().setRequestId(UUID.randomUUID().toString()).setSpec(spec).build();
    return Backoff.retrying(() -> workflows.createWorkflow(request)).getName().replace("operations/", "workflows/");
  }

  /** The workflow's steps by name, once it has succeeded. */
  Map<String, Step> watch(String name) throws Failure, InterruptedException {
    Map<String, Step> steps = new HashMap<>();
    Workflow workflow = Workflow.getDefaultInstance();
    long revision = 0;
    for (Backoff backoff = new Backoff(); ; ) {
      try {
        var request = WatchWorkflowRequest.newBuilder().setName(name).setAfterRevision(revision).build();
        Iterator<WatchWorkflowEvent> events = workflows.watchWorkflow(request);
        while (events.hasNext()) {
          WatchWorkflowEvent event = events.next();
          backoff.progressed();
          revision = event.getRevision();
          List<Step> changed = event.getChange().getStepsList();
          if (event.hasSnapshot()) {
            workflow = event.getSnapshot();
            changed = workflow.getStepsList();
            steps.clear();
          } else if (event.getChange().hasWorkflow()) {
            workflow = event.getChange().getWorkflow();
          }
          for (Step step : changed) {
            steps.put(step.getName(), step);
            print(step);
          }
        }
        if (workflow.getState() == State.STATE_SUCCEEDED) return steps;
        if (workflow.getState() == State.STATE_FAILED || workflow.getState() == State.STATE_CANCELLED) {
          throw new Failure(workflow.getError());
        }
      } catch (StatusRuntimeException error) {
        backoff.await(error, "watching again after revision " + revision);
      }
    }
  }

  private static void print(Step step) {
    String text = step.getState().name().replace("STATE_", "").toLowerCase(Locale.ROOT);
    if (step.getCacheHit()) text += ", cached";
    if (step.getState() == State.STATE_RUNNING && step.hasProgress()) {
      text += ", " + step.getProgress().getStage() + " " + step.getProgress().getDone();
      if (step.getProgress().getTotal() > 0) text += " of " + step.getProgress().getTotal();
    }
    System.err.printf("%s: %s%n", step.getName(), text);
  }

  /** The file appears when it is whole and right. */
  void download(Digest digest, Path path) throws Failure, IOException, InterruptedException {
    Path part = path.resolveSibling(path.getFileName() + ".part");
    MessageDigest sha256 = Digests.sha256();
    long offset;
    try (OutputStream file = Files.newOutputStream(part)) {
      offset = read(digest, file, sha256);
    }
    String found = HexFormat.of().formatHex(sha256.digest());
    if (offset != digest.getSizeBytes() || !found.equals(digest.getHash())) {
      String message = String.format("`%s` came with sha256 %s, %s was asked for", path.getFileName(), found, digest.getHash());
      throw new Failure(Status.newBuilder().setCode(Code.DATA_LOSS_VALUE).setMessage(message).build());
    }
    Files.move(part, path, StandardCopyOption.REPLACE_EXISTING);
  }

  /** How many bytes it wrote: all, unless the gateway has fewer. */
  private long read(Digest digest, OutputStream to, MessageDigest sha256) throws Failure, IOException, InterruptedException {
    String name = "blobs/" + digest.getHash() + "/" + digest.getSizeBytes();
    long offset = 0;
    Backoff backoff = new Backoff();
    while (offset < digest.getSizeBytes()) {
      try {
        Iterator<ReadResponse> responses = bytes.read(ReadRequest.newBuilder().setResourceName(name).setReadOffset(offset).build());
        while (responses.hasNext()) {
          byte[] data = responses.next().getData().toByteArray();
          to.write(data);
          sha256.update(data);
          offset += data.length;
          backoff.progressed();
        }
        break;
      } catch (StatusRuntimeException error) {
        backoff.await(error, "reading on from byte " + offset);
      }
    }
    return offset;
  }
}
