// Steps of workflows, put together by hand.
#pragma once

#include <string>

#include "quench/gateway/v1/workflows.pb.h"

namespace quench::cli {

// Where a step's module comes from: another step, or, where that has no name, the caller's blobs.
struct ModuleSource {
  step::v1::Module given;
  std::string step;
  gateway::v1::Port port = gateway::v1::PORT_MODULE;
};

gateway::v1::StepSpec* AddStep(gateway::v1::WorkflowSpec& spec, const std::string& name);

// `input` of `spec` becomes `output` of `step`.
void Bind(gateway::v1::StepSpec* spec, gateway::v1::Port input, const std::string& step,
          gateway::v1::Port output);

// The canonical module of `model`, by the step `name` where it must be imported.
ModuleSource AddImport(gateway::v1::WorkflowSpec& spec, const std::string& name,
                       const gateway::v1::BatchModel& model);

// A step that takes a module and gives one. `mutable_request` says which.
template <typename Request>
ModuleSource AddModuleStep(gateway::v1::WorkflowSpec& spec, const std::string& name,
                           Request* (gateway::v1::StepSpec::*mutable_request)(),
                           const ModuleSource& from, Request request = {}) {
  gateway::v1::StepSpec* step = AddStep(spec, name);
  if (from.step.empty()) {
    *request.mutable_module() = from.given;
  } else {
    Bind(step, gateway::v1::PORT_MODULE, from.step, from.port);
  }
  *(step->*mutable_request)() = std::move(request);
  return {{}, name, gateway::v1::PORT_MODULE};
}

}  // namespace quench::cli
