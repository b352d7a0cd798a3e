// The gateway and the services as processes, on this machine, as scripts/serve_local runs them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "tests/support/background.h"

namespace quench::testing {

class Cluster {
 public:
  // Services share the gateway's folder, or reach its blobs over the network (`remote`).
  explicit Cluster(bool remote = false);

  const std::string& gateway() const { return addresses_.at("gateway"); }
  const std::filesystem::path& folder() const { return folder_.path(); }
  static const std::vector<std::string>& Services();  // without the gateway

  Background& process(const std::string& name) { return *processes_.at(name); }
  // Again on the address that it had. The one before must have ended.
  void Start(const std::string& name);
  // SIGKILL, and gone.
  void Kill(const std::string& name);
  // SIGTERM; gives the exit code.
  int Drain(const std::string& name);

 private:
  std::string Config(const std::string& name) const;

  TempDir folder_ = *TempDir::Create();
  const bool remote_;
  int starts_ = 0;
  std::map<std::string, std::string> addresses_;
  std::map<std::string, std::unique_ptr<Background>> processes_;
};

}  // namespace quench::testing
