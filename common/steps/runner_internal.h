// One step on its way, for the files that are StepRunner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/steps/runner.h"
#include "quench/step/v1/step.pb.h"

namespace quench::steps {

struct StepRunner::Job {
  const Step& step;
  const google::protobuf::Message& request;
  const StepContext& context;
  google::protobuf::Message* result;
  std::string tenant;
  std::string key;
  std::shared_ptr<rpc::TenantStore> storage;
  std::vector<std::shared_ptr<void>> held;  // what it needs of it
  std::vector<BlobId> inputs;
  std::optional<TempDir> drafts;  // where a child has left what it made
  step::v1::Execution execution;
};

}  // namespace quench::steps
