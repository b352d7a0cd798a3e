package quench.example;

import com.google.rpc.RetryInfo;
import com.google.rpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;

/** Between the tries of one operation; gives up when a minute has brought nothing. */
final class Backoff {
  private static final long RETRY_NANOS = 60_000_000_000L;
  /** Nobody here cancels: a server or proxy broke the call off. Other codes pass only where RetryInfo says so. */
  private static final Set<io.grpc.Status.Code> PASSING_CODES =
      Set.of(io.grpc.Status.Code.UNAVAILABLE, io.grpc.Status.Code.CANCELLED);

  private long began;
  private long delayMillis;

  Backoff() {
    progressed();
  }

  void progressed() {
    began = System.nanoTime();
    delayMillis = 100;
  }

  /** Throws Failure unless the error is one that passes. */
  void await(StatusRuntimeException error, String what) throws Failure, InterruptedException {
    Status status = Failure.statusOf(error);
    Optional<RetryInfo> retryInfo = Failure.detail(status, RetryInfo.class);
    if (!PASSING_CODES.contains(error.getStatus().getCode()) && retryInfo.isEmpty()) throw new Failure(status);
    long delay = ThreadLocalRandom.current().nextLong(delayMillis / 2, delayMillis);
    if (retryInfo.isPresent()) {
      var asked = retryInfo.get().getRetryDelay();
      delay = Math.max(delay, asked.getSeconds() * 1000 + asked.getNanos() / 1_000_000);
    }
    if (System.nanoTime() - began + delay * 1_000_000 > RETRY_NANOS) throw new Failure(status);
    System.err.printf("%s: %s; %s in %.1f s%n", Failure.codeName(status), status.getMessage(), what, delay / 1000.0);
    Thread.sleep(delay);
    delayMillis = Math.min(2 * delayMillis, 5000);
  }

  /** Asks until there is an answer, or an error that does not pass. */
  static <T> T retrying(Supplier<T> call) throws Failure, InterruptedException {
    for (Backoff backoff = new Backoff(); ; ) {
      try {
        return call.get();
      } catch (StatusRuntimeException error) {
        backoff.await(error, "asking again");
      }
    }
  }
}
