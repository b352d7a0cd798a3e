package quench.example;

import com.google.bytestream.ByteStreamGrpc;
import com.google.bytestream.ByteStreamProto.WriteRequest;
import com.google.bytestream.ByteStreamProto.WriteResponse;
import com.google.protobuf.ByteString;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** One call of ByteStream.Write: chunks go out as fast as the gateway takes them. */
final class Upload implements ClientResponseObserver<WriteRequest, WriteResponse> {
  private static final int CHUNK_BYTES = 1 << 20;

  private final CompletableFuture<Long> committed = new CompletableFuture<>();
  private ClientCallStreamObserver<WriteRequest> requests;

  private Upload() {}

  /** Sends the bytes from `offset` to `end`, without `finish_write` where that is not the blob's end; how many the gateway has. */
  static long write(ByteStreamGrpc.ByteStreamStub stub, Path path, String name, long offset, long end, long size)
      throws IOException, InterruptedException {
    Upload upload = new Upload();
    try (FileChannel file = FileChannel.open(path)) {
      stub.write(upload);
      upload.send(file, path, name, offset, end, size);
      return upload.committed.get();
    } catch (IOException error) {
      upload.requests.cancel(error.getMessage(), error);
      throw error;
    } catch (ExecutionException error) {
      if (error.getCause() instanceof StatusRuntimeException status) throw status;
      throw new IllegalStateException(error.getCause());
    }
  }

  private void send(FileChannel file, Path path, String name, long offset, long end, long size)
      throws IOException, InterruptedException {
    do {
      ByteBuffer data = ByteBuffer.allocate((int) Math.min(CHUNK_BYTES, end - offset));
      while (data.hasRemaining()) {
        if (file.read(data, offset + data.position()) < 0) throw new IOException("`" + path + "` became shorter while it was read");
      }
      if (!awaitReady()) return;
      boolean finish = offset + data.capacity() == size;
      requests.onNext(WriteRequest.newBuilder().setResourceName(name).setWriteOffset(offset)
          .setData(ByteString.copyFrom(data.flip())).setFinishWrite(finish).build());
      offset += data.capacity();
    } while (offset < end);
    requests.onCompleted();
  }

  /** False once the gateway has answered already. */
  private synchronized boolean awaitReady() throws InterruptedException {
    while (!requests.isReady() && !committed.isDone()) wait();
    return !committed.isDone();
  }

  private synchronized void wake() {
    notifyAll();
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<WriteRequest> stream) {
    requests = stream;
    stream.setOnReadyHandler(this::wake);
  }

  @Override
  public void onNext(WriteResponse response) {
    committed.complete(response.getCommittedSize());
    wake();
  }

  @Override
  public void onError(Throwable error) {
    committed.completeExceptionally(error);
    wake();
  }

  @Override
  public void onCompleted() {
    wake();
  }
}
