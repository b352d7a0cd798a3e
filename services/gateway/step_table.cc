#include "services/gateway/step_table.h"

#include <absl/strings/ascii.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/base/status.h"
#include "common/ir/wire/walk.h"
#include "common/rpc/errors.h"
#include "google/api/field_behavior.pb.h"

namespace quench::gateway {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

constexpr char kExternalData[] = "external_data/";

metrics::Service ServiceLabel(const std::string& area) {
  if (area == "importer") return metrics::Service::kImporter;
  if (area == "analyser") return metrics::Service::kAnalyser;
  if (area == "quantizer") return metrics::Service::kQuantizer;
  QUENCH_CHECK(area == "codegen");  // steps.def names no other
  return metrics::Service::kCodegen;
}

OutputKind KindOf(const FieldDescriptor* field) {
  if (field == nullptr || field->is_repeated() || field->message_type() == nullptr) {
    return OutputKind::kNone;
  }
  if (field->message_type() == Digest::descriptor()) return OutputKind::kDigest;
  if (field->message_type() == step::v1::Module::descriptor()) return OutputKind::kModule;
  return OutputKind::kNone;
}

bool HasExternalData(const Descriptor& result) {
  const FieldDescriptor* field = result.FindFieldByName("external_data");
  return field != nullptr && field->message_type() == step::v1::File::descriptor();
}

// `tap_library` of PORT_TAP_LIBRARY, and the other way round.
std::string NameOf(v1::Port port) {
  constexpr size_t kPrefix = sizeof("PORT_") - 1;
  const std::string& name = v1::Port_Name(port);
  return port == v1::PORT_UNSPECIFIED || name.empty() ? ""
                                                      : absl::AsciiStrToLower(name.substr(kPrefix));
}
v1::Port PortOf(const std::string& name) {
  v1::Port port = v1::PORT_UNSPECIFIED;
  v1::Port_Parse("PORT_" + absl::AsciiStrToUpper(name), &port);
  return port;
}

std::vector<std::string> RequiredFields(const Descriptor& request) {
  std::vector<std::string> required;
  for (int i = 0; i < request.field_count(); ++i) {
    const google::protobuf::FieldOptions& options = request.field(i)->options();
    for (int k = 0; k < options.ExtensionSize(google::api::field_behavior); ++k) {
      if (options.GetExtension(google::api::field_behavior, k) == google::api::REQUIRED) {
        required.push_back(request.field(i)->name());
      }
    }
  }
  return required;
}

v1::StepOutput ModuleOutput(const std::string& name, const step::v1::Module& module) {
  v1::StepOutput output;
  output.set_name(name);
  output.set_port(PortOf(name));
  *output.mutable_digest() = module.digest();
  *output.mutable_module() = module;
  return output;
}

// `path`: of external data.
v1::StepOutput DigestOutput(const std::string& name, const Digest& digest,
                            const std::string& path) {
  v1::StepOutput output;
  output.set_name(path.empty() ? name : name + "/" + path);
  output.set_port(PortOf(name));
  *output.mutable_digest() = digest;
  return output;
}

}  // namespace

const std::vector<StepRow>& StepTable() {
#define QUENCH_STEP(field, area, Service, Method, stage) \
  StepRow{#field,                                        \
          #Method,                                       \
          #area,                                         \
          ServiceLabel(#area),                           \
          metrics::Stage::stage,                         \
          area::v1::Method##Result::descriptor(),        \
          RequiredFields(*area::v1::Method##Request::descriptor())},
  static const auto* const table = new std::vector<StepRow>{
#include "services/gateway/steps.def"
  };
#undef QUENCH_STEP
  return *table;
}

const StepRow* RowOf(const v1::StepSpec& spec) {
  const FieldDescriptor* field = spec.GetReflection()->GetOneofFieldDescriptor(
      spec, v1::StepSpec::descriptor()->FindOneofByName("request"));
  if (field == nullptr) return nullptr;
  for (const StepRow& row : StepTable()) {
    if (row.request == field->name()) return &row;
  }
  return nullptr;
}

const Message& RequestOf(const v1::StepSpec& spec) {
  const Reflection& reflection = *spec.GetReflection();
  const FieldDescriptor* field = reflection.GetOneofFieldDescriptor(
      spec, v1::StepSpec::descriptor()->FindOneofByName("request"));
  QUENCH_CHECK(field != nullptr);  // callers have looked
  return reflection.GetMessage(spec, field);
}

std::string InputOf(const v1::Binding& binding) { return NameOf(binding.input()); }

std::string OutputOf(const v1::Binding& binding) {
  const bool has_path = binding.output() == v1::PORT_EXTERNAL_DATA || !binding.path().empty();
  return NameOf(binding.output()) + (has_path ? "/" + binding.path() : "");
}

OutputKind KindOfField(const Descriptor& message, const std::string& field) {
  return KindOf(message.FindFieldByName(field));
}

OutputKind KindOfOutput(const StepRow& row, const std::string& output) {
  if (output == "result") return OutputKind::kDigest;
  if (output.starts_with(kExternalData) && output.size() > std::size(kExternalData) - 1) {
    return HasExternalData(*row.result) ? OutputKind::kDigest : OutputKind::kNone;
  }
  return KindOfField(*row.result, output);
}

std::vector<v1::StepOutput> OutputsOf(const Message& result) {
  std::vector<v1::StepOutput> outputs;
  const Reflection& reflection = *result.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(result, &fields);
  for (const FieldDescriptor* field : fields) {
    if (KindOf(field) == OutputKind::kModule) {
      outputs.push_back(ModuleOutput(field->name(), static_cast<const step::v1::Module&>(
                                                        reflection.GetMessage(result, field))));
    } else if (KindOf(field) == OutputKind::kDigest) {
      outputs.push_back(DigestOutput(
          field->name(), static_cast<const Digest&>(reflection.GetMessage(result, field)), ""));
    } else if (field->is_repeated() && field->message_type() == step::v1::File::descriptor()) {
      for (int i = 0; i < reflection.FieldSize(result, field); ++i) {
        const auto& file =
            static_cast<const step::v1::File&>(reflection.GetRepeatedMessage(result, field, i));
        outputs.push_back(DigestOutput(field->name(), file.digest(), file.path()));
      }
    }
  }
  return outputs;
}

std::vector<Digest> DigestsIn(const Message& message) {
  std::vector<Digest> digests;
  wire::ForEachMessage<Digest>(message, [&](const Digest& digest, const std::string&) {
    if (!digest.hash().empty()) digests.push_back(digest);
  });
  return digests;
}

absl::StatusOr<std::unique_ptr<Message>> BindRequest(
    const v1::StepSpec& spec,
    const std::function<const v1::StepOutput*(const std::string&, const std::string&)>& find) {
  const Message& given = RequestOf(spec);
  std::unique_ptr<Message> request(given.New());
  request->CopyFrom(given);
  for (const v1::Binding& binding : spec.bindings()) {
    const std::string name = OutputOf(binding);
    const FieldDescriptor* field = request->GetDescriptor()->FindFieldByName(InputOf(binding));
    if (KindOf(field) == OutputKind::kNone) {
      return rpc::Error(rpc::Reason::kFailedPrecondition,
                        fmt::format("a binding to step `{}` names no input: it was stored by "
                                    "another version",
                                    binding.step()));
    }
    const v1::StepOutput* output = find(binding.step(), name);
    if (output == nullptr) {
      return rpc::Error(rpc::Reason::kFailedPrecondition,
                        fmt::format("step `{}` gave no output `{}`, which `{}` needs",
                                    binding.step(), name, InputOf(binding)));
    }
    Message* target = request->GetReflection()->MutableMessage(request.get(), field);
    if (KindOf(field) == OutputKind::kModule) {
      target->CopyFrom(output->module());
    } else {
      target->CopyFrom(output->digest());
    }
  }
  return request;
}

std::string Serialised(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace quench::gateway
