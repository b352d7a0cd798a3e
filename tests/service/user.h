// Somebody who has a gateway do all that a workflow can, and what tests look at in it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quench/gateway/v1/workflows.pb.h"
#include "services/cli/remote/client.h"
#include "services/cli/remote/model.h"
#include "tests/service/cluster.h"

namespace quench::testing {

constexpr char kCompileStep[] = "compile";

// A step of every kind that a workflow may have, with its service.
const std::vector<std::pair<std::string, std::string>>& AllSteps();

class User {
 public:
  // Has uploaded its model. `name`: of its folder in the cluster's.
  explicit User(const Cluster& cluster, const std::string& name = "user");

  // Every step of AllSteps, and those that they need. Equal salts are answered from the cache.
  gateway::v1::WorkflowSpec Spec(const std::string& salt) const;
  absl::StatusOr<std::string> Create(const gateway::v1::WorkflowSpec& spec, const std::string& id) {
    return client_->Create(spec, id, {});
  }
  cli::GatewayClient& client() { return *client_; }

 private:
  std::shared_ptr<LocalBlobStore> local_;
  std::unique_ptr<cli::GatewayClient> client_;
  gateway::v1::BatchModel model_;
};

// The library that the step kCompileStep has made.
std::string LibraryOf(const gateway::v1::Workflow& workflow);
const gateway::v1::Step& StepOf(const gateway::v1::Workflow& workflow, const std::string& name);
// The steps that did not succeed at once, for the whole of a workflow is longer than what a test's log keeps.
std::string Failures(const gateway::v1::Workflow& workflow);

}  // namespace quench::testing
