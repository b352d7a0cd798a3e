package quench.example;

import build.bazel.remote.execution.v2.Digest;
import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import quench.codegen.v1.Target;
import quench.gateway.v1.BatchModel;
import quench.gateway.v1.CompileBatch;
import quench.gateway.v1.CompileChoice;
import quench.gateway.v1.Step;
import quench.gateway.v1.StepOutput;
import quench.gateway.v1.WorkflowSpec;
import quench.importer.v1.Model;

/** Compiles a model through a Quench gateway: writes OUTPUT_DIR/model.so and OUTPUT_DIR/model.h. */
final class Client {
  private static final int MAX_MESSAGE_BYTES = 16 << 20;
  private static final String USAGE = """
      usage: client --gateway HOST:PORT [options] MODEL OUTPUT_DIR
        --ca FILE          PEM of who signs the gateway's certificate; absent: plain text
        --token-file FILE  holds a bearer token
        --target NAME      default: x86-64-v3
        --sha256 HEX       of MODEL, where it is known already
        --break-upload     for tests: the upload stops half way once, and resumes
      """;
  private static final List<String> OPTIONS = List.of("--gateway", "--ca", "--token-file", "--target", "--sha256");

  private final Map<String, String> options = new HashMap<>(Map.of("--target", "x86-64-v3"));
  private boolean breakUpload;
  private final Path model;
  private final Path output;

  private Client(String[] words) {
    List<String> files = new ArrayList<>();
    for (int i = 0; i < words.length; ++i) {
      if (words[i].equals("--break-upload")) {
        breakUpload = true;
      } else if (OPTIONS.contains(words[i]) && i + 1 < words.length) {
        options.put(words[i], words[++i]);
      } else if (words[i].startsWith("--")) {
        throw new IllegalArgumentException("`" + words[i] + "` is no option, or lacks its value");
      } else {
        files.add(words[i]);
      }
    }
    if (!options.containsKey("--gateway") || files.size() != 2) {
      throw new IllegalArgumentException("--gateway, MODEL and OUTPUT_DIR must be given");
    }
    model = Path.of(files.get(0));
    output = Path.of(files.get(1));
  }

  private ManagedChannel openChannel() throws IOException {
    ChannelCredentials credentials = InsecureChannelCredentials.create();
    if (options.containsKey("--ca")) {
      credentials = TlsChannelCredentials.newBuilder().trustManager(Path.of(options.get("--ca")).toFile()).build();
    }
    List<ClientInterceptor> interceptors = new ArrayList<>();
    if (options.containsKey("--token-file")) {
      Metadata headers = new Metadata();
      String token = Files.readString(Path.of(options.get("--token-file"))).strip();
      headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
      interceptors.add(MetadataUtils.newAttachHeadersInterceptor(headers));
    }
    return Grpc.newChannelBuilder(options.get("--gateway"), credentials).intercept(interceptors)
        .maxInboundMessageSize(MAX_MESSAGE_BYTES).keepAliveTime(1, TimeUnit.MINUTES).build();
  }

  /** One cell of a batch: its steps are `model/import`, `model/default/transform` and `model/default/{target}/compile`. */
  private WorkflowSpec spec(Digest digest) {
    String name = model.getFileName().toString();
    return WorkflowSpec.newBuilder()
        .setTitle("compile " + name)
        .setCompile(CompileBatch.newBuilder()
            .addModels(BatchModel.newBuilder().setName("model").setModel(Model.newBuilder().setFile(digest).setName(name)))
            .addChoices(CompileChoice.newBuilder().setName("default"))
            .addTargets(Target.newBuilder().setName(options.get("--target"))))
        .build();
  }

  private void compile(GatewayClient client) throws Failure, IOException, InterruptedException {
    Digest digest = options.containsKey("--sha256") ? Digests.of(model, options.get("--sha256")) : Digests.of(model);
    client.upload(model, digest, breakUpload);
    String name = client.create(spec(digest));
    System.err.println(name);
    Step step = client.watch(name).get("model/default/" + options.get("--target") + "/compile");
    Map<String, Digest> outputs = new HashMap<>();
    for (StepOutput each : step.getOutputsList()) outputs.put(each.getName(), each.getDigest());
    Files.createDirectories(output);
    client.download(outputs.get("library"), output.resolve("model.so"));
    client.download(outputs.get("header"), output.resolve("model.h"));
  }

  private int run() throws InterruptedException {
    ManagedChannel channel = null;
    try {
      channel = openChannel();
      compile(new GatewayClient(channel));
      return 0;
    } catch (Failure failure) {
      failure.print();
    } catch (IOException error) {
      System.err.println("client: " + error);
    } finally {
      if (channel != null) channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
    return 1;
  }

  public static void main(String[] words) throws InterruptedException {
    Client client;
    try {
      client = new Client(words);
    } catch (IllegalArgumentException error) {
      System.err.printf("client: %s%n%s", error.getMessage(), USAGE);
      System.exit(2);
      return;
    }
    System.exit(client.run());
  }
}
