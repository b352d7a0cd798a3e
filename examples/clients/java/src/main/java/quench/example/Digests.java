package quench.example;

import build.bazel.remote.execution.v2.Digest;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** What blobs are called. */
final class Digests {
  private static final int CHUNK_BYTES = 1 << 20;

  private Digests() {}

  static MessageDigest sha256() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("every Java has SHA-256", error);
    }
  }

  static Digest of(Path path) throws IOException {
    MessageDigest sha256 = sha256();
    try (InputStream file = Files.newInputStream(path)) {
      byte[] data = new byte[CHUNK_BYTES];
      for (int count; (count = file.read(data)) >= 0; ) sha256.update(data, 0, count);
    }
    return of(path, HexFormat.of().formatHex(sha256.digest()));
  }

  static Digest of(Path path, String sha256) throws IOException {
    return Digest.newBuilder().setHash(sha256).setSizeBytes(Files.size(path)).build();
  }
}
