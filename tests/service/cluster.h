// The gateway and the services as processes, on this machine, as scripts/serve_local runs them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "tests/support/background.h"

namespace quench::testing {

struct ClusterOptions {
  // Services reach the gateway's blobs over the network; else they share its folder.
  bool remote = false;
  // A server of the Remote Execution API where all of them have their blobs instead.
  std::string store;
  // As in the shipped image: user 10001, without a home, nothing to write but the cluster's folder.
  bool as_in_image = false;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options = {});
  // Whether this machine lets us run programs as in the image.
  static bool CanRunAsInImage();

  const std::string& gateway() const { return addresses_.at("gateway"); }
  const std::filesystem::path& folder() const { return folder_.path(); }
  static const std::vector<std::string>& Services();  // without the gateway

  Background& process(const std::string& name) { return *processes_.at(name); }
  // Again on the address that it had. The one before must have ended. `variables`: of Background.
  void Start(const std::string& name, const std::vector<std::string>& variables = {});
  // SIGKILL, and gone.
  void Kill(const std::string& name);
  // SIGTERM; gives the exit code.
  int Drain(const std::string& name);

 private:
  std::string Config(const std::string& name) const;

  TempDir folder_ = *TempDir::Create();
  const ClusterOptions options_;
  int starts_ = 0;
  std::map<std::string, std::string> addresses_;
  std::map<std::string, std::unique_ptr<Background>> processes_;
};

}  // namespace quench::testing
