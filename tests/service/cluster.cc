#include "tests/service/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "common/blobs/digest.h"

namespace quench::testing {

const std::vector<std::string>& Cluster::Services() {
  static const auto* const services =
      new std::vector<std::string>{"importer", "analyser", "codegen"};
  return *services;
}

// A gateway that knows no services yet is there first when they need its blobs.
Cluster::Cluster(bool remote) : remote_(remote) {
  addresses_["gateway"] = "127.0.0.1:0";
  for (const std::string& service : Services()) addresses_[service] = "127.0.0.1:0";
  EXPECT_TRUE(WriteFileAtomically(folder_.path() / "token", "of services").ok());
  EXPECT_TRUE(
      WriteFileAtomically(folder_.path() / "tokens", "gateway " + Sha256Hex("of services")).ok());
  if (remote) {
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
    return config + "}\n";
  }
  config += fmt::format("steps {{ slots: 2 scratch_dir: \"{}\" }}\n",
                        (folder_.path() / "scratch").string());
  return config +
         (remote_ ? fmt::format("blobs {{ remote {{ address: \"{}\" token_file: \"{}\" }} }}\n",
                                gateway(), token)
                  : fmt::format("blobs {{ folder: \"{}/store\" }}\n", state));
}

void Cluster::Start(const std::string& name) {
  const std::filesystem::path config = folder_.path() / (name + ".txtpb");
  ASSERT_TRUE(WriteFileAtomically(config, Config(name)).ok());
  processes_[name] = std::make_unique<Background>(
      std::vector<std::string>{std::string(QUENCH_BINARIES) + "/quench-" + name, "--config",
                               config.string()},
      folder_.path() / fmt::format("{}.{}.log", name, ++starts_),
      std::vector<std::string>{
          fmt::format("XDG_CACHE_HOME={}", (folder_.path() / ("cache-" + name)).string())});
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
