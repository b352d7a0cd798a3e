// A step in progress, for the source files of StepRunner.
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
  StepContext& context;
  google::protobuf::Message* result;
  std::string tenant;
  std::string key;
  std::shared_ptr<rpc::TenantStore> storage;
  std::vector<std::shared_ptr<void>> held;  // blobs of the store that the step needs
  std::vector<BlobId> inputs;
  std::optional<TempDir> drafts;  // folder with the outputs of a child
  step::v1::Execution execution;
  MemoryBudget::Place* place = nullptr;  // not owned; null: nothing is reserved
  const StepContext* caller = nullptr;   // whose deadline counts while the step waits for memory
};

}  // namespace quench::steps
