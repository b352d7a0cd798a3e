// Workflows of steps that cost nothing, as from a warm cache, through one gateway with its job store
// on a disk: workflows a second, latency from CreateWorkflow to the end of WaitOperation, and the
// latency of GetWorkflow at a fixed rate beside them.
//
// Usage: bench_workflow_rate [--json] [--seconds N] [--clients N] [--rate CALLS] [--state-dir DIR]
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/base/files.h"
#include "common/blobs/blob_store.h"
#include "services/gateway/gateway.h"
#include "tests/unit/services/gateway/fake_services.h"

namespace {

using namespace quench;           // NOLINT: a program, not a header
using namespace quench::gateway;  // NOLINT
using Clock = std::chrono::steady_clock;

struct Options {
  bool json = false;
  double seconds = 5;
  int clients = 16;
  int rate = 1000;
  std::string state_dir;
};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      options->json = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    if (name == "--seconds") {
      options->seconds = std::atof(value.c_str());
    } else if (name == "--clients") {
      options->clients = std::atoi(value.c_str());
    } else if (name == "--rate") {
      options->rate = std::atoi(value.c_str());
    } else if (name == "--state-dir") {
      options->state_dir = value;
    } else {
      return false;
    }
  }
  return options->seconds > 0 && options->clients > 0 && options->rate >= 0;
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// In milliseconds.
double Percentile(std::vector<double> seconds, double part) {
  if (seconds.empty()) return 0;
  std::sort(seconds.begin(), seconds.end());
  const auto at = static_cast<size_t>(part * static_cast<double>(seconds.size() - 1));
  return seconds[at] * 1000;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  rpc::ChannelOptions options;
  options.address = address;
  return (*rpc::Channel::Open(options))->grpc();
}

// Creates one workflow after the other, each to its end.
void RunWorkflows(const std::string& address, int client, const std::atomic<bool>& stop,
                  std::vector<double>* latencies, std::string* last) {
  const auto channel = Connect(address);
  const auto workflows = v1::Workflows::NewStub(channel);
  const auto operations = google::longrunning::Operations::NewStub(channel);
  for (int i = 0; !stop; ++i) {
    const auto start = Clock::now();
    v1::CreateWorkflowRequest request;
    *request.mutable_spec() = ChainSpec(fmt::format("{}/{}", client, i));
    grpc::ClientContext creating, waiting;
    google::longrunning::Operation operation, done;
    grpc::Status status = workflows->CreateWorkflow(&creating, request, &operation);
    google::longrunning::WaitOperationRequest wait;
    wait.set_name(operation.name());
    if (status.ok()) status = operations->WaitOperation(&waiting, wait, &done);
    if (!status.ok() || !done.has_response()) {
      fmt::print(stderr, "a workflow failed: {}\n", status.error_message());
      std::exit(1);
    }
    latencies->push_back(SecondsSince(start));
    *last = operation.name();
  }
}

// Asks for a workflow `rate` times a second, whether or not answers come as fast: latency is from
// when a call was due.
void RunControl(const std::string& address, const std::string& name, int rate, double seconds,
                std::vector<double>* latencies) {
  constexpr int kThreads = 4;
  const auto start = Clock::now();
  const auto calls = static_cast<int>(rate * seconds);
  std::vector<std::vector<double>> each(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto stub = v1::Workflows::NewStub(Connect(address));
      for (int i = t; i < calls; i += kThreads) {
        const auto due = start + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(double{1} * i / rate));
        std::this_thread::sleep_until(due);
        grpc::ClientContext context;
        v1::GetWorkflowRequest request;
        request.set_name(name);
        v1::GetWorkflowResponse response;
        if (!stub->GetWorkflow(&context, request, &response).ok()) std::exit(1);
        each[t].push_back(SecondsSince(due));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& some : each) latencies->insert(latencies->end(), some.begin(), some.end());
}

struct Figures {
  double per_second = 0, cpu_ms = 0, p50 = 0, p99 = 0, control_p50 = 0, control_p99 = 0;
};

Figures Measure(const Options& options, const std::filesystem::path& folder) {
  FakeServices services(64, "unix:" + (folder / "s").string());
  const auto blobs = LocalBlobStore::Open(folder / "blobs");
  GatewayOptions gateway_options;
  gateway_options.state_dir = folder / "state";
  gateway_options.channels = services.Channels();
  gateway_options.blobs.missing = [](const std::string&, const std::vector<Digest>&) {
    return std::vector<Digest>();
  };
  gateway_options.put_blob = [&](const std::string&,
                                 const std::string& bytes) -> absl::StatusOr<Digest> {
    const Digest digest = DigestOf(bytes);
    if (!(*blobs)->Contains(digest.hash())) {
      const auto put = (*blobs)->Put(std::as_bytes(std::span(bytes)));
      if (!put.ok()) return put.status();
    }
    return digest;
  };
  const auto gateway = *Gateway::Start(gateway_options);
  rpc::ServerOptions server_options;
  server_options.listen = "unix:" + (folder / "g").string();
  const auto server = *rpc::Server::Start(server_options, gateway->services());

  Figures figures;
  std::atomic<bool> stop{false};
  std::vector<std::vector<double>> latencies(options.clients);
  std::vector<std::string> names(options.clients);
  std::vector<std::thread> clients;
  const double cpu = CpuSeconds();
  const auto start = Clock::now();
  for (int i = 0; i < options.clients; ++i) {
    clients.emplace_back(
        [&, i] { RunWorkflows(server->address(), i, stop, &latencies[i], &names[i]); });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  stop = true;
  for (std::thread& client : clients) client.join();
  const double seconds = SecondsSince(start);
  std::vector<double> all;
  for (const auto& each : latencies) all.insert(all.end(), each.begin(), each.end());
  figures.per_second = static_cast<double>(all.size()) / seconds;
  figures.cpu_ms = (CpuSeconds() - cpu) * 1000 / static_cast<double>(all.size());
  figures.p50 = Percentile(all, 0.5);
  figures.p99 = Percentile(all, 0.99);
  std::vector<double> control;
  RunControl(server->address(), WorkflowName(IdOf(names[0])), options.rate, options.seconds,
             &control);
  figures.control_p50 = Percentile(control, 0.5);
  figures.control_p99 = Percentile(control, 0.99);
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fmt::print(stderr,
               "usage: {} [--json] [--seconds N] [--clients N] [--rate CALLS] [--state-dir DIR]\n",
               argv[0]);
    return 2;
  }
  auto folder = TempDir::Create(options.state_dir);
  if (!folder.ok()) {
    fmt::print(stderr, "{}\n", MessageOf(folder.status()));
    return 1;
  }
  const Figures f = Measure(options, folder->path());
  if (options.json) {
    fmt::print(
        "{{\"workflows_per_second\": {:.1f}, \"cpu_ms_per_workflow\": {:.3f}, \"latency_ms\": "
        "{{\"p50\": {:.2f}, \"p99\": {:.2f}}}, \"clients\": {}, \"control_ms\": {{\"rate\": {}, "
        "\"p50\": {:.2f}, \"p99\": {:.2f}}}}}\n",
        f.per_second, f.cpu_ms, f.p50, f.p99, options.clients, options.rate, f.control_p50,
        f.control_p99);
    return 0;
  }
  fmt::print("{:<44}{:>10.1f}\n", "workflows of 3 steps a second", f.per_second);
  fmt::print("{:<44}{:>10.2f}\n", "CPU ms each (gateway, services, clients)", f.cpu_ms);
  fmt::print("{:<44}{:>10.2f}{:>10.2f}\n", "Create to end, ms: p50, p99", f.p50, f.p99);
  fmt::print("{:<44}{:>10.2f}{:>10.2f}\n",
             fmt::format("GetWorkflow at {}/s, ms: p50, p99", options.rate), f.control_p50,
             f.control_p99);
  return 0;
}
