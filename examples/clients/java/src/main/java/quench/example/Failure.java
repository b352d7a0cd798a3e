package quench.example;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.BadRequest;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.Optional;

/** Nothing that another try would change. */
final class Failure extends Exception {
  private static final long serialVersionUID = 1;
  private final transient Status status;

  Failure(Status status) {
    super(status.getMessage());
    this.status = status;
  }

  /** What every error of a gateway carries; made from code and message where one has none. */
  static Status statusOf(StatusRuntimeException error) {
    return StatusProto.fromThrowable(error);
  }

  static <T extends Message> Optional<T> detail(Status status, Class<T> type) {
    for (Any packed : status.getDetailsList()) {
      try {
        if (packed.is(type)) return Optional.of(packed.unpack(type));
      } catch (InvalidProtocolBufferException error) {
        return Optional.empty();
      }
    }
    return Optional.empty();
  }

  static String codeName(Status status) {
    Code code = Code.forNumber(status.getCode());
    return code == null ? Integer.toString(status.getCode()) : code.name();
  }

  void print() {
    System.err.printf("client: %s: %s%n", codeName(status), status.getMessage());
    detail(status, ErrorInfo.class).ifPresent(info -> System.err.printf("  reason: %s%n", info.getReason()));
    detail(status, BadRequest.class).ifPresent(request -> {
      for (BadRequest.FieldViolation violation : request.getFieldViolationsList()) {
        System.err.printf("  field: %s: %s%n", violation.getField(), violation.getDescription());
      }
    });
  }
}
