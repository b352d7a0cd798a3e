#include "services/cli/remote/steps.h"

namespace quench::cli {

namespace pb = ::quench::gateway::v1;

pb::StepSpec* AddStep(pb::WorkflowSpec& spec, const std::string& name) {
  pb::StepSpec* step = spec.mutable_steps()->add_steps();
  step->set_name(name);
  return step;
}

void Bind(pb::StepSpec* spec, pb::Port input, const std::string& step, pb::Port output) {
  pb::Binding* binding = spec->add_bindings();
  binding->set_input(input);
  binding->set_step(step);
  binding->set_output(output);
}

ModuleSource AddImport(pb::WorkflowSpec& spec, const std::string& name,
                       const pb::BatchModel& model) {
  if (!model.has_model()) return {model.module(), "", pb::PORT_MODULE};
  importer::v1::ImportRequest* request = AddStep(spec, name)->mutable_import_model();
  *request->mutable_model() = model.model();
  *request->mutable_options() = model.import_options();
  return {{}, name, pb::PORT_CANONICAL};
}

}  // namespace quench::cli
