#include "tests/service/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "common/blobs/digest.h"

namespace quench::testing {

namespace {

std::string InStore(const std::string& address) {
  return fmt::format("blobs {{ remote {{ address: \"{}\" }} }}\n", address);
}

// Runs what follows where nothing but `folder` can be written.
std::vector<std::string> InImage(const std::filesystem::path& folder) {
  std::vector<std::string> command = {"unshare", "--mount"};
  if (geteuid() != 0) command.emplace_back("--map-root-user");
  for (const char* word :
       {"sh", "-c",
        "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro / && exec unshare --user "
        "--map-user=10001 --map-group=10001 env -u HOME -u XDG_CACHE_HOME -u XDG_STATE_HOME -u "
        "TMPDIR \"$@\""}) {
    command.emplace_back(word);
  }
  command.push_back(folder.string());
  return command;
}

}  // namespace

bool Cluster::CanRunAsInImage() {
  const TempDir folder = *TempDir::Create();
  std::vector<std::string> command = InImage(folder.path());
  for (const char* word : {"sh", "-c", "test $(id -u) = 10001 && ! touch /quench-test"}) {
    command.emplace_back(word);
  }
  return Background(command, folder.path() / "log").Wait() == 0;
}

const std::vector<std::string>& Cluster::Services() {
  static const auto* const services =
      new std::vector<std::string>{"importer", "analyser", "quantizer", "codegen"};
  return *services;
}

// A gateway that knows no services yet is there first when they need its blobs.
Cluster::Cluster(const ClusterOptions& options) : options_(options) {
  addresses_["gateway"] = "127.0.0.1:0";
  for (const std::string& service : Services()) addresses_[service] = "127.0.0.1:0";
  EXPECT_TRUE(WriteFileAtomically(folder_.path() / "token", "of-services").ok());
  EXPECT_TRUE(
      WriteFileAtomically(folder_.path() / "tokens", "gateway " + Sha256Hex("of-services")).ok());
  if (options.remote) {
    Start("gateway");
    for (const std::string& service : Services()) Start(service);
    EXPECT_EQ(Drain("gateway"), 0);
  } else {
    for (const std::string& service : Services()) Start(service);
  }
  Start("gateway");
}

std::string Cluster::Config(const std::string& name) const {
  const std::string state = (folder_.path() / "state").string();
  const std::string token = (folder_.path() / "token").string();
  const bool is_gateway = name == "gateway";
  std::string config = fmt::format(
      "server {{ listen: \"{}\" grace {{ seconds: 20 }} {} }}\n", addresses_.at(name),
      is_gateway ? fmt::format("token_file: \"{}s\" tokens_optional: true", token) : "");
  if (is_gateway) {
    config += fmt::format("state_dir: \"{}\"\nservices {{\n", state);
    for (const std::string& service : Services()) {
      config += fmt::format("  {} {{ address: \"{}\" }}\n", service, addresses_.at(service));
    }
    config += "}\n";
    return options_.store.empty() ? config : config + InStore(options_.store);
  }
  config += fmt::format("steps {{ slots: 2 scratch_dir: \"{}\" }}\n",
                        (folder_.path() / ("scratch-" + name)).string());
  if (!options_.store.empty()) return config + InStore(options_.store);
  if (!options_.remote) return config + fmt::format("blobs {{ folder: \"{}/store\" }}\n", state);
  return config + fmt::format("blobs {{ remote {{ address: \"{}\" token_file: \"{}\" }} }}\n",
                              gateway(), token);
}

void Cluster::Start(const std::string& name, const std::vector<std::string>& variables) {
  const std::filesystem::path config = folder_.path() / (name + ".txtpb");
  ASSERT_TRUE(WriteFileAtomically(config, Config(name)).ok());
  std::vector<std::string> command;
  if (options_.as_in_image) command = InImage(folder_.path());
  for (const std::string& word : {std::string(QUENCH_BINARIES) + "/quench-" + name,
                                  std::string("--config"), config.string()}) {
    command.push_back(word);
  }
  processes_[name] = std::make_unique<Background>(
      command, folder_.path() / fmt::format("{}.{}.log", name, ++starts_), variables);
  ASSERT_TRUE(processes_[name]->WaitForLog(name + " serves on ")) << processes_[name]->Log();
  ASSERT_TRUE(processes_[name]->WaitForLog(name == "gateway" ? "blobs in" : "slots"));
  addresses_[name] = processes_[name]->FromLog(name + " serves on ");
}

void Cluster::Kill(const std::string& name) {
  process(name).Signal(SIGKILL);
  EXPECT_EQ(process(name).Wait(), 128 + SIGKILL);
}

int Cluster::Drain(const std::string& name) {
  process(name).Signal(SIGTERM);
  const int code = process(name).Wait();
  EXPECT_EQ(code, 0) << process(name).Log();
  return code;
}

}  // namespace quench::testing
