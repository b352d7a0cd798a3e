// blob_transfer_bench [--megabytes N] [--rounds N] [--json] [--folder DIR]
//
// Uploads and downloads of one blob over loopback TCP, through the gateway's ByteStream, beside a
// bare gRPC stream of the same messages that nobody hashes or stores. Server and client are two
// processes; the four transfers take turns, and medians are shown. CPU seconds are those of both
// processes. Ours verifies, writes and flushes at both ends.
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <sstream>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/rpc/remote_blobs.h"
#include "common/rpc/server.h"
#include "google/bytestream/bytestream.grpc.pb.h"
#include "services/gateway/blobs/blob_services.h"

namespace quench {
namespace {

namespace bytestream = ::google::bytestream;

constexpr size_t kChunkBytes = size_t{1} << 20;

struct Options {
  int megabytes = 256;
  int rounds = 7;
  bool json = false;
  std::string folder;
};

// Takes and gives chunks as they are.
class BareStream final : public bytestream::ByteStream::CallbackService {
  class Sink final : public grpc::ServerReadReactor<bytestream::WriteRequest> {
   public:
    explicit Sink(bytestream::WriteResponse* response) : response_(response) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        response_->set_committed_size(bytes_);
        Finish(grpc::Status::OK);
        return;
      }
      bytes_ += static_cast<int64_t>(request_.data().size());
      StartRead(&request_);
    }
    void OnDone() override { delete this; }

   private:
    bytestream::WriteResponse* response_;
    bytestream::WriteRequest request_;
    int64_t bytes_ = 0;
  };
  class Source final : public grpc::ServerWriteReactor<bytestream::ReadResponse> {
   public:
    explicit Source(int64_t bytes) : left_(bytes) {
      response_.set_data(std::string(kChunkBytes, 'x'));
      Next();
    }
    void OnWriteDone(bool ok) override { ok ? Next() : Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    void Next() {
      if (left_ <= 0) return Finish(grpc::Status::OK);
      left_ -= static_cast<int64_t>(kChunkBytes);
      StartWrite(&response_);
    }
    bytestream::ReadResponse response_;
    int64_t left_;
  };

  grpc::ServerReadReactor<bytestream::WriteRequest>* Write(
      grpc::CallbackServerContext*, bytestream::WriteResponse* response) override {
    return new Sink(response);
  }
  grpc::ServerWriteReactor<bytestream::ReadResponse>* Read(
      grpc::CallbackServerContext*, const bytestream::ReadRequest* request) override {
    return new Source(request->read_limit());
  }
};

// Two servers of one process; their ports go to `out`.
int Serve(const std::string& folder, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  rpc::BlockTerminationSignals();
  auto folders = gateway::BlobFolders::Open(folder, uint64_t{1} << 50);
  if (!folders.ok()) return 1;
  rpc::CallPool pool(gateway::BlobPoolOptions());
  const gateway::BlobServices services(**folders, pool);
  BareStream bare;
  const auto ours = rpc::Server::Start({}, services.services());
  const auto beside = rpc::Server::Start({}, {&bare});
  if (!ours.ok() || !beside.ok()) return 1;
  const int ports[2] = {(*ours)->port(), (*beside)->port()};
  if (::write(out, ports, sizeof(ports)) != sizeof(ports)) return 1;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  int received = 0;
  sigwait(&signals, &received);
  return 0;
}

double CpuSeconds(pid_t server) {
  rusage own{};
  ::getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  std::ifstream file(fmt::format("/proc/{}/stat", server));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;  // fields 14 and 15 of proc(5)
  fields >> user >> system;
  return seconds(own.ru_utime) + seconds(own.ru_stime) +
         (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Row {
  const char* name;
  std::function<absl::Status()> run;
  std::vector<double> seconds, cpu;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status BareUpload(const rpc::Channel& channel, bytestream::ByteStream::Stub& stub,
                        int megabytes) {
  rpc::ClientCall call(channel, {});
  bytestream::WriteResponse response;
  const auto writer = stub.Write(call.context(), &response);
  bytestream::WriteRequest request;
  request.set_data(std::string(kChunkBytes, 'x'));
  for (int i = 0; i < megabytes && writer->Write(request); ++i) {
  }
  writer->WritesDone();
  return absl::Status(static_cast<absl::StatusCode>(writer->Finish().error_code()), "");
}

absl::Status BareDownload(const rpc::Channel& channel, bytestream::ByteStream::Stub& stub,
                          int megabytes) {
  rpc::ClientCall call(channel, {});
  bytestream::ReadRequest request;
  request.set_read_limit(static_cast<int64_t>(megabytes) * static_cast<int64_t>(kChunkBytes));
  const auto reader = stub.Read(call.context(), request);
  bytestream::ReadResponse response;
  while (reader->Read(&response)) {
  }
  return absl::Status(static_cast<absl::StatusCode>(reader->Finish().error_code()), "");
}

// A blob that the server has not yet.
absl::StatusOr<BlobId> NewBlob(LocalBlobStore& store, int megabytes, int round) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, store.Create());
  std::vector<std::byte> chunk(kChunkBytes, static_cast<std::byte>(round));
  for (int i = 0; i < megabytes; ++i) {
    std::memcpy(chunk.data(), &i, sizeof(i));
    QUENCH_RETURN_IF_ERROR(writer->Append(chunk));
  }
  const uint64_t size = writer->size();
  QUENCH_ASSIGN_OR_RETURN(std::string hash, writer->Commit());
  return BlobId{std::move(hash), size};
}

void Print(const std::vector<Row>& rows, const Options& options) {
  const double gigabytes = options.megabytes * static_cast<double>(kChunkBytes) / 1e9;
  std::string json;
  if (!options.json) {
    fmt::print("{:<14} {:>9} {:>12} {:>9}\n", "transfer", "MB/s", "CPU s/GB", "of bare");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const double speed = gigabytes * 1000 / Median(rows[i].seconds);
    const double cpu = Median(rows[i].cpu) / gigabytes;
    // Rounds are compared one by one: the machine's mood is the same within one.
    std::vector<double> ratios;
    for (size_t k = 0; k < rows[i].seconds.size(); ++k) {
      ratios.push_back(rows[i | 1].seconds[k] / rows[i].seconds[k]);
    }
    const double ratio = Median(ratios);
    json += fmt::format(
        "{}  {{\"transfer\": \"{}\", \"megabytes_per_second\": {:.1f}, "
        "\"cpu_seconds_per_gigabyte\": {:.3f}, \"ratio_to_bare\": {:.3f}}}",
        json.empty() ? "" : ",\n", rows[i].name, speed, cpu, ratio);
    if (!options.json) {
      fmt::print("{:<14} {:>9.0f} {:>12.2f} {:>9.2f}\n", rows[i].name, speed, cpu, ratio);
    }
  }
  if (options.json) fmt::print("[\n{}\n]\n", json);
}

absl::Status Measure(const Options& options, const std::filesystem::path& folder, pid_t server,
                     const int (&ports)[2]) {
  std::shared_ptr<rpc::Channel> channels[2];
  for (int i = 0; i < 2; ++i) {
    rpc::ChannelOptions channel;
    channel.address = fmt::format("127.0.0.1:{}", ports[i]);
    QUENCH_ASSIGN_OR_RETURN(channels[i], rpc::Channel::Open(channel));
  }
  const auto bare = bytestream::ByteStream::NewStub(channels[1]->grpc());
  rpc::RemoteBlobs remote(channels[0], {});
  QUENCH_ASSIGN_OR_RETURN(const auto local, LocalBlobStore::Open(folder / "local", nullptr));
  QUENCH_ASSIGN_OR_RETURN(const auto back, LocalBlobStore::Open(folder / "back", nullptr));
  QUENCH_ASSIGN_OR_RETURN(const auto theirs, LocalBlobStore::Open(folder / "server", nullptr));
  BlobId id;
  std::vector<Row> rows(4);
  rows[0] = {"upload", [&] { return remote.Upload(*local, {id}, {}); }, {}, {}};
  rows[1] = {
      "upload bare", [&] { return BareUpload(*channels[1], *bare, options.megabytes); }, {}, {}};
  rows[2] = {"download", [&] { return remote.Download({id}, *back, {}); }, {}, {}};
  rows[3] = {"download bare",
             [&] { return BareDownload(*channels[1], *bare, options.megabytes); },
             {},
             {}};
  for (int round = 0; round <= options.rounds; ++round) {
    QUENCH_ASSIGN_OR_RETURN(id, NewBlob(*local, options.megabytes, round));
    for (Row& row : rows) {
      const double cpu = CpuSeconds(server);
      const auto begin = std::chrono::steady_clock::now();
      QUENCH_RETURN_IF_ERROR(Annotate(row.run(), row.name));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      if (round == 0) continue;  // warms up
      row.seconds.push_back(seconds.count());
      row.cpu.push_back(CpuSeconds(server) - cpu);
    }
    for (LocalBlobStore* store : {local.get(), back.get(), theirs.get()}) {
      QUENCH_RETURN_IF_ERROR(store->Prune(0).status());
    }
  }
  Print(rows, options);
  return absl::OkStatus();
}

// 0 for what is none.
int Number(std::string_view text) {
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && rest == text.data() + text.size() ? number : 0;
}

int Main(const Options& options) {
  auto folder = TempDir::Create(options.folder);
  if (!folder.ok()) {
    std::cerr << MessageOf(folder.status()) << "\n";
    return 1;
  }
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  const pid_t server = ::fork();  // before gRPC has threads
  if (server == 0) ::_exit(Serve((folder->path() / "server").string(), ends[1]));
  ::close(ends[1]);
  int ports[2] = {0, 0};
  absl::Status status = absl::UnavailableError("the server did not start");
  if (server > 0 && ::read(ends[0], ports, sizeof(ports)) == sizeof(ports)) {
    status = Measure(options, folder->path(), server, ports);
  }
  if (server > 0) {
    ::kill(server, SIGTERM);
    ::waitpid(server, nullptr, 0);
  }
  if (!status.ok()) std::cerr << MessageOf(status) << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace quench

int main(int argc, char** argv) {
  quench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--megabytes" && has_value) {
      options.megabytes = quench::Number(argv[++i]);
    } else if (argument == "--rounds" && has_value) {
      options.rounds = quench::Number(argv[++i]);
    } else if (argument == "--folder" && has_value) {
      options.folder = argv[++i];
    } else {
      std::cerr
          << "usage: blob_transfer_bench [--megabytes N] [--rounds N] [--json] [--folder DIR]\n";
      return 2;
    }
  }
  if (options.megabytes < 1 || options.rounds < 1) {
    std::cerr << "blob_transfer_bench: megabytes and rounds must be at least 1\n";
    return 2;
  }
  return quench::Main(options);
}
