// Workflows as tests need them.
#pragma once

#include <string>

#include "common/blobs/digest.h"
#include "services/gateway/step_table.h"

namespace quench::gateway {

inline Digest DigestOf(const std::string& bytes) {
  Digest digest;
  digest.set_hash(Sha256Hex(bytes));
  digest.set_size_bytes(static_cast<int64_t>(bytes.size()));
  return digest;
}

inline v1::StepSpec* AddImport(v1::WorkflowSpec* spec, const std::string& name,
                               const std::string& model = "model") {
  v1::StepSpec* step = spec->mutable_steps()->add_steps();
  step->set_name(name);
  *step->mutable_import_model()->mutable_model()->mutable_file() = DigestOf(model);
  return step;
}

inline void Bind(v1::StepSpec* step, v1::Port input, const std::string& from, v1::Port output) {
  v1::Binding* binding = step->add_bindings();
  binding->set_input(input);
  binding->set_step(from);
  binding->set_output(output);
}

inline v1::StepSpec* AddTransform(v1::WorkflowSpec* spec, const std::string& name,
                                  const std::string& from, v1::Port output = v1::PORT_MODULE) {
  v1::StepSpec* step = spec->mutable_steps()->add_steps();
  step->set_name(name);
  step->mutable_transform();
  Bind(step, v1::PORT_MODULE, from, output);
  return step;
}

inline v1::StepSpec* AddCompile(v1::WorkflowSpec* spec, const std::string& name,
                                const std::string& from) {
  v1::StepSpec* step = spec->mutable_steps()->add_steps();
  step->set_name(name);
  step->mutable_compile()->mutable_target()->set_name("x86-64-v3");
  Bind(step, v1::PORT_MODULE, from, v1::PORT_MODULE);
  return step;
}

// import -> transform -> compile.
inline v1::WorkflowSpec ChainSpec(const std::string& model = "model") {
  v1::WorkflowSpec spec;
  AddImport(&spec, "import", model);
  AddTransform(&spec, "transform", "import", v1::PORT_CANONICAL);
  AddCompile(&spec, "compile", "transform");
  return spec;
}

}  // namespace quench::gateway
