#include "services/gateway/expand.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/status.h"
#include "tests/support/matchers.h"
#include "tests/unit/services/gateway/sample_specs.h"

namespace quench::gateway::expand_test {
namespace {

using quench::testing::ElementsAre;
using quench::testing::HasSubstr;

const std::string kA(64, 'a');

v1::WorkflowSpec Parse(const std::string& text) {
  v1::WorkflowSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

std::vector<std::string> NamesOf(const absl::StatusOr<v1::WorkflowSpec>& spec) {
  std::vector<std::string> names;
  if (!spec.ok()) return {spec.status().ToString()};
  for (const v1::StepSpec& step : spec->steps().steps()) names.push_back(step.name());
  return names;
}

std::vector<std::string> WrongFields(const v1::WorkflowSpec& spec) {
  const absl::Status status = Expand(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(rpc::ReasonOf(status), "INVALID_REQUEST");
  std::vector<std::string> fields;
  for (const rpc::FieldViolation& violation : rpc::FieldsOf(status)) {
    fields.push_back(violation.field);
  }
  return fields;
}

std::string Batch(const std::string& choices, const std::string& targets) {
  return "compile { models { name: 'r' model { file { hash: '" + kA + "' size_bytes: 1 } } } " +
         choices + targets + " }";
}

TEST(ExpandTest, CompileBatchIsEveryModelWithEveryChoiceForEveryTarget) {
  const auto spec = Expand(
      Parse("compile { models { name: 'a' model { file { hash: '" + kA +
            "' size_bytes: 1 } } import_options { opset: 13 } } "
            "models { name: 'b' module { digest { hash: '" +
            kA +
            "' } } } "
            "choices { name: 'fast' passes { disabled: 'fuse' } compile_options { taps: true } } "
            "choices { name: 'half' passes { stop_after: 'fold' } } "
            "targets { name: 'x86-64-v3' } targets { name: 'raspberry-pi/5' } } title: 't'"));
  EXPECT_THAT(NamesOf(spec), ElementsAre("a/import", "a/fast/transform", "a/fast/x86-64-v3/compile",
                                         "a/fast/raspberry-pi/5/compile", "a/half/transform",
                                         "b/fast/transform", "b/fast/x86-64-v3/compile",
                                         "b/fast/raspberry-pi/5/compile", "b/half/transform"));
  EXPECT_EQ(spec->title(), "t");
  const auto& steps = spec->steps().steps();
  EXPECT_EQ(steps[0].import_model().options().opset(), 13);
  EXPECT_EQ(steps[1].bindings(0).output(), v1::PORT_CANONICAL);
  EXPECT_EQ(steps[5].transform().module().digest().hash(), kA);
  EXPECT_EQ(steps[5].bindings_size(), 0);
  const codegen::v1::CompileRequest& compile = steps[2].compile();
  EXPECT_TRUE(compile.options().taps());
  EXPECT_EQ(compile.options().passes().disabled(0), "fuse");
  EXPECT_EQ(compile.target().name(), "x86-64-v3");
  EXPECT_EQ(steps[2].bindings(0).step(), "a/fast/transform");
  EXPECT_EQ(steps[2].bindings_size(), 1);  // what has taps is not checked
}

// The reference for a library is the module before passes.
TEST(ExpandTest, LibrariesAreHeldAgainstTheModuleBeforePasses) {
  const auto of = [](const std::string& choice) {
    return Expand(Parse(Batch("choices { name: 'o' " + choice + " }", "targets { name: 't' }")));
  };
  const auto plain = of("");
  const v1::StepSpec& compile = plain->steps().steps(2);
  ASSERT_EQ(compile.bindings_size(), 2);
  EXPECT_EQ(compile.bindings(1).input(), v1::PORT_REFERENCE);
  EXPECT_EQ(compile.bindings(1).step(), "r/import");
  EXPECT_EQ(compile.bindings(1).output(), v1::PORT_CANONICAL);
  const auto unchecked = of("compile_options { check: CHECK_NO }");
  EXPECT_EQ(unchecked->steps().steps(2).bindings_size(), 1);
  const auto quantized = of("quantize { options { source: RANGE_SOURCE_WEIGHTS_ONLY } }");
  const v1::StepSpec& last = quantized->steps().steps(quantized->steps().steps_size() - 1);
  EXPECT_EQ(last.bindings(1).step(), "r/o/quantize");
  EXPECT_EQ(last.bindings(1).output(), v1::PORT_MODULE);
}

TEST(ExpandTest, HeadersAreCalledByTheirModels) {
  const auto prefix = [](const std::string& name, const std::string& options) {
    v1::WorkflowSpec spec = Parse(Batch("choices { name: 'o' compile_options { " + options + " } }",
                                        "targets { name: 't' }"));
    spec.mutable_compile()->mutable_models(0)->mutable_model()->set_name(name);
    return Expand(spec)->steps().steps(2).compile().options().header_prefix();
  };
  EXPECT_EQ(prefix("keyword-spotting.v2.onnx", ""), "keyword-spotting.v2");
  EXPECT_EQ(prefix("", ""), "r");
  EXPECT_EQ(prefix("keyword.onnx", "header_prefix: 'mine'"), "mine");
}

TEST(ExpandTest, AUuidAddsThePackageStep) {
  const std::string uuid = "uuid: '0123456789abcdef0123456789abcdef'";
  const auto spec =
      Expand(Parse(Batch("choices { name: 'o' " + uuid + " }", "targets { name: 't' }")));
  EXPECT_THAT(NamesOf(spec),
              ElementsAre("r/import", "r/o/transform", "r/o/t/compile", "r/o/t/package"));
  const v1::StepSpec& package = spec->steps().steps(3);
  EXPECT_EQ(package.bindings(0).input(), v1::PORT_LIBRARY);
  EXPECT_EQ(package.bindings(1).input(), v1::PORT_HEADER);
  EXPECT_THAT(WrongFields(Parse(Batch("choices { name: 'o' " + uuid + " }",
                                      "targets { name: 't' } targets { name: 'u' }"))),
              ElementsAre("spec.compile.choices[0].uuid"));
}

TEST(ExpandTest, AnalyseBatchTakesAModuleForBoth) {
  const auto spec = Expand(Parse("analyse { models { name: 'a' model { file { hash: '" + kA +
                                 "' } } } models { name: 'b' module { digest { hash: '" + kA +
                                 "' } } } sizes { symbol: 'n' size: 4 } }"));
  EXPECT_THAT(NamesOf(spec), ElementsAre("a/import", "a/analyse", "b/analyse"));
  EXPECT_EQ(spec->steps().steps(1).bindings_size(), 2);
  EXPECT_EQ(spec->steps().steps(2).analyse().imported().digest().hash(), kA);
  EXPECT_EQ(spec->steps().steps(2).analyse().sizes(0).size(), 4);
}

TEST(ExpandTest, StepsFollowTheirDependencies) {
  v1::WorkflowSpec spec;
  AddCompile(&spec, "c", "t");
  AddTransform(&spec, "t", "i", v1::PORT_CANONICAL);
  AddImport(&spec, "other");
  AddImport(&spec, "i");
  const auto expanded = Expand(spec);
  EXPECT_THAT(NamesOf(expanded), ElementsAre("i", "t", "c", "other"));
  const auto dependencies = DependenciesOf(expanded->steps());
  EXPECT_EQ(dependencies, (std::vector<std::vector<int>>{{}, {0}, {1}, {}}));
}

TEST(ExpandTest, EveryWrongFieldIsReported) {
  v1::WorkflowSpec spec;
  spec.set_title(std::string(256, 'x'));
  spec.set_salt(std::string(129, 'x'));
  AddImport(&spec, "two words");
  AddImport(&spec, "i")->mutable_import_model()->mutable_step()->set_tenant("x");
  AddImport(&spec, "i");
  spec.mutable_steps()->add_steps()->set_name("nothing");
  AddTransform(&spec, "t", "i", v1::PORT_LIBRARY);  // Import gives none
  Bind(AddTransform(&spec, "u", "i", v1::PORT_CANONICAL), v1::PORT_LIBRARY, "i",
       v1::PORT_CANONICAL);
  Bind(AddTransform(&spec, "v", "i", v1::PORT_CANONICAL), v1::PORT_MODULE, "i", v1::PORT_CANONICAL);
  AddTransform(&spec, "w", "nowhere");
  AddTransform(&spec, "x", "i", v1::PORT_RESULT);  // a Digest
  spec.mutable_steps()->add_steps()->set_name("y");
  spec.mutable_steps()->mutable_steps(9)->mutable_transform();
  AddImport(&spec, "z")->mutable_import_model()->mutable_model()->mutable_file()->set_hash("z");
  EXPECT_THAT(
      WrongFields(spec),
      ElementsAre("spec.title", "spec.salt", "spec.steps.steps[0].name", "spec.steps.steps[2].name",
                  "spec.steps.steps[1].import_model.step", "spec.steps.steps[3].request",
                  "spec.steps.steps[4].bindings[0].output", "spec.steps.steps[5].bindings[1].input",
                  "spec.steps.steps[6].bindings[1].input", "spec.steps.steps[7].bindings[0].step",
                  "spec.steps.steps[8].bindings[0].output", "spec.steps.steps[9].transform.module",
                  "spec.steps.steps[10].import_model"));
}

TEST(ExpandTest, CirclesAreReported) {
  v1::WorkflowSpec spec;
  AddTransform(&spec, "a", "b");
  AddTransform(&spec, "b", "c");
  AddTransform(&spec, "c", "a");
  EXPECT_THAT(WrongFields(spec), ElementsAre("spec.steps.steps[2].bindings"));
  v1::WorkflowSpec self;
  AddTransform(&self, "a", "a");
  EXPECT_THAT(WrongFields(self), ElementsAre("spec.steps.steps[0].bindings"));
}

TEST(ExpandTest, WithoutTargetsNothingIsCompiled) {
  const std::string models = fmt::format(
      "compile {{ models {{ name: \"m\" module {{ digest {{ hash: \"{}\" }} }} }} ", kA);
  v1::WorkflowSpec spec = Parse(models + "choices { name: \"c\" quantize {} } }");
  const auto expanded = Expand(spec);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  EXPECT_THAT(NamesOf(expanded), ElementsAre("m/c/transform", "m/c/quantize", "m/c/optimise"));
  spec.mutable_compile()->add_choices()->set_name("d");
  EXPECT_THAT(WrongFields(spec), ElementsAre("spec.compile.targets"));
}

TEST(ExpandTest, WrongBatches) {
  EXPECT_THAT(WrongFields({}), ElementsAre("spec.work"));
  EXPECT_THAT(WrongFields(Parse("steps {}")), ElementsAre("spec.steps.steps"));
  EXPECT_THAT(WrongFields(Parse("compile {}")),
              ElementsAre("spec.compile.models", "spec.compile.targets", "spec.compile.choices"));
  EXPECT_THAT(
      WrongFields(Parse(Batch("choices { name: 'a/b' } choices { name: 'c' uuid: 'x' }"
                              "choices { name: 'c' }",
                              "targets { name: 'host' } targets { name: 'host' host {} }"))),
      ElementsAre("spec.compile.targets[0].host", "spec.compile.targets[1].name",
                  "spec.compile.choices[0].name", "spec.compile.choices[1].uuid",
                  "spec.compile.choices[2].name"));
  EXPECT_THAT(WrongFields(Parse("analyse { models { name: 'm' } }")),
              ElementsAre("spec.analyse.models[0]"));
}

TEST(ExpandTest, AtMostTwentyThousandSteps) {
  v1::WorkflowSpec spec;
  for (int i = 0; i < kMaxSteps; ++i) AddImport(&spec, "i" + std::to_string(i));
  EXPECT_TRUE(Expand(spec).ok());
  AddImport(&spec, "one_more");
  EXPECT_THAT(WrongFields(spec), ElementsAre("spec.steps.steps"));
  v1::WorkflowSpec batch = Parse(Batch("choices { name: 'o' }", ""));
  for (int i = 0; i < kMaxSteps; ++i) {
    batch.mutable_compile()->add_targets()->set_name("t" + std::to_string(i));
  }
  EXPECT_THAT(WrongFields(batch), ElementsAre("spec.compile"));  // and the import and transform
}

// 300 models, one choice with 20,000 entries: 1.5 MB that would become 1 GB of steps.
TEST(ExpandTest, BytesAreBoundedWhileStepsAreWrittenOut) {
  v1::WorkflowSpec spec = Parse(Batch("choices { name: 'o' }", "targets { name: 't' }"));
  auto* passes = spec.mutable_compile()->mutable_choices(0)->mutable_passes();
  for (int i = 0; i < 20'000; ++i)
    passes->add_magnitudes()->set_value("value_" + std::to_string(i));
  EXPECT_TRUE(Expand(spec).ok());
  for (int i = 0; i < 300; ++i) {
    *spec.mutable_compile()->add_models() = spec.compile().models(0);
    spec.mutable_compile()->mutable_models(i + 1)->set_name("m" + std::to_string(i));
  }
  const v1::StepList& steps = spec.steps();
  Violations violations;
  EXPECT_EQ(internal::WriteOut(spec.compile(), kMaxWorkflowBytes, &violations).steps_size(),
            steps.steps_size());
  EXPECT_THAT(WrongFields(spec), ElementsAre("spec.compile"));
  EXPECT_THAT(Expand(spec).status().ToString(),
              HasSubstr("steps of more than 33554432 bytes of memory"));
  // The limit is that of all steps together, however they are asked for.
  v1::WorkflowSpec list;
  AddImport(&list, "a");
  EXPECT_TRUE(Expand(list, 4000).ok());
  list.mutable_steps()->mutable_steps(0)->mutable_import_model()->mutable_model()->set_name(
      std::string(4000, 'x'));
  EXPECT_THAT(Expand(list, 4000).status().ToString(), HasSubstr("steps of more than 4000 bytes"));
}

TEST(ExpandTest, TwoThousandModelsShareOneManifest) {
  v1::WorkflowSpec spec =
      Parse(Batch("choices { name: 'o' quantize { calibrate { samples { manifest { hash: '" + kA +
                      "' size_bytes: 9 } } } } }",
                  "targets { name: 't' }"));
  for (int i = 0; i < 1999; ++i) {
    *spec.mutable_compile()->add_models() = spec.compile().models(0);
    spec.mutable_compile()->mutable_models(i + 1)->set_name("m" + std::to_string(i));
  }
  const auto expanded = Expand(spec);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  EXPECT_EQ(expanded->steps().steps_size(), 2000 * 7);
  step::v1::SampleManifest manifest;
  for (int i = 0; i < 3; ++i) {
    manifest.add_files()->set_path(std::to_string(i));
    *manifest.mutable_files(i)->mutable_digest() = DigestOf(std::to_string(i / 2));
  }
  int reads = 0;
  const auto read = [&](const auto&, const Digest&) {
    ++reads;
    return manifest.SerializeAsString();
  };
  const auto samples = SamplesIn("t", expanded->steps(), read);
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->size(), 2u);
  EXPECT_EQ(reads, 1);
  manifest.mutable_files(0)->mutable_digest()->set_hash("short");
  EXPECT_THAT(SamplesIn("t", expanded->steps(), read).status().ToString(), HasSubstr("`short`"));
  manifest.clear_files();
  EXPECT_THAT(SamplesIn("t", expanded->steps(), read).status().ToString(), HasSubstr("no files"));
  EXPECT_THAT(SamplesIn("t", expanded->steps(), read, 8).status().ToString(),
              HasSubstr("9 bytes of manifests"));
}

TEST(ExpandTest, ALongChainIsNoDeepRecursion) {
  v1::WorkflowSpec spec;
  AddTransform(&spec, "0", "1");
  for (int i = 1; i + 1 < kMaxSteps; ++i) {
    AddTransform(&spec, std::to_string(i), std::to_string(i + 1),
                 i + 2 < kMaxSteps ? v1::PORT_MODULE : v1::PORT_CANONICAL);
  }
  AddImport(&spec, std::to_string(kMaxSteps - 1));
  const auto expanded = Expand(spec);
  ASSERT_TRUE(expanded.ok()) << expanded.status();
  EXPECT_EQ(expanded->steps().steps(0).name(), std::to_string(kMaxSteps - 1));
}

TEST(ExpandTest, MissingBlobsAreNamedTogether) {
  v1::WorkflowSpec spec;
  AddImport(&spec, "a", "x");
  AddImport(&spec, "b", "x");
  AddImport(&spec, "c", "y");
  const std::vector<Digest> inputs = InputsOf(Expand(spec)->steps());
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(CheckBlobs("", inputs, [](const auto&, const auto&) { return std::vector<Digest>(); }),
            absl::OkStatus());
  const absl::Status status =
      CheckBlobs("", inputs, [](const auto&, const auto& all) { return all; });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rpc::ReasonOf(status), "BLOB_MISSING");
  ASSERT_EQ(rpc::PreconditionsOf(status).size(), 2u);
  EXPECT_EQ(rpc::PreconditionsOf(status)[0].type, "MISSING");
  EXPECT_THAT(rpc::PreconditionsOf(status)[0].subject, HasSubstr("blobs/"));
}

TEST(StepTableTest, OutputsComeFromResults) {
  importer::v1::ExportResult result;
  result.mutable_file()->set_hash(kA);
  auto* data = result.add_external_data();
  data->set_path("weights/w.bin");
  data->mutable_digest()->set_hash(kA);
  std::vector<std::string> names;
  for (const v1::StepOutput& output : OutputsOf(result)) names.push_back(output.name());
  EXPECT_THAT(names, ElementsAre("file", "external_data/weights/w.bin"));
  EXPECT_EQ(OutputsOf(result)[1].port(), v1::PORT_EXTERNAL_DATA);
  v1::Binding binding;
  binding.set_output(v1::PORT_EXTERNAL_DATA);
  binding.set_path("weights/w.bin");
  EXPECT_EQ(OutputOf(binding), names[1]);
  const StepRow& row = StepTable()[2];
  EXPECT_EQ(row.method, "Export");
  EXPECT_EQ(KindOfOutput(row, "external_data/x"), OutputKind::kDigest);
  EXPECT_EQ(KindOfOutput(row, "external_data/"), OutputKind::kNone);
  EXPECT_EQ(KindOfOutput(row, "execution"), OutputKind::kNone);
  EXPECT_EQ(KindOfOutput(StepTable()[0], "external_data/x"), OutputKind::kNone);
}

// The names of `message`'s fields that bindings may name.
std::set<std::string> PortsOf(const google::protobuf::Descriptor& message) {
  std::set<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    const std::string& name = message.field(i)->name();
    if (KindOfField(message, name) != OutputKind::kNone) names.insert(name);
  }
  return names;
}

TEST(StepTableTest, PortsAreTheFieldsOfRequestsAndResults) {
  std::set<std::string> fields = {"result", "external_data"}, ports;
  v1::StepSpec spec;
  for (const StepRow& row : StepTable()) {
    fields.merge(PortsOf(*row.result));
    fields.merge(PortsOf(*spec.GetDescriptor()->FindFieldByName(row.request)->message_type()));
  }
  for (int i = 1; i < v1::Port_descriptor()->value_count(); ++i) {
    v1::Binding binding;
    binding.set_input(static_cast<v1::Port>(v1::Port_descriptor()->value(i)->number()));
    ports.insert(InputOf(binding));
  }
  EXPECT_EQ(ports, fields);
}

TEST(StepTableTest, RequiredFieldsAreThoseMarkedSo) {
  EXPECT_THAT(StepTable()[0].required, ElementsAre("model"));
  EXPECT_THAT(StepTable()[3].required, ElementsAre("imported", "canonical"));
  for (const StepRow& row : StepTable()) EXPECT_FALSE(row.required.empty()) << row.method;
}

TEST(StepTableTest, BindingsOfAnotherVersionAreErrors) {
  v1::WorkflowSpec spec = ChainSpec();
  v1::StepSpec& step = *spec.mutable_steps()->mutable_steps(1);
  step.mutable_bindings(0)->clear_input();
  const v1::StepOutput output;
  const auto find = [&](const auto&, const auto&) { return &output; };
  EXPECT_EQ(BindRequest(step, find).status().code(), absl::StatusCode::kFailedPrecondition);
  step.mutable_bindings(0)->set_input(static_cast<v1::Port>(99));
  EXPECT_EQ(BindRequest(step, find).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(StepTableTest, BindingsFillTheRequestIn) {
  const v1::WorkflowSpec spec = ChainSpec();
  v1::StepOutput output;
  output.mutable_module()->set_fingerprint("f");
  const auto request = BindRequest(spec.steps().steps(1), [&](const auto& step, const auto& name) {
    return step == "import" && name == "canonical" ? &output : nullptr;
  });
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& transform = static_cast<const importer::v1::TransformRequest&>(**request);
  EXPECT_EQ(transform.module().fingerprint(), "f");
  const auto none =
      BindRequest(spec.steps().steps(1), [](const auto&, const auto&) { return nullptr; });
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageOf(none.status()), HasSubstr("step `import` gave no output `canonical`"));
}

// Names become paths where outputs are downloaded.
TEST(ExpandTest, NamesStayBelowTheirFolder) {
  for (const char* name : {"a", "a/b", "a..b/.c", "raspberry-pi/5"})
    EXPECT_TRUE(IsStepName(name, true)) << name;
  for (const char* name : {"", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b"})
    EXPECT_FALSE(IsStepName(name, true)) << name;
}

}  // namespace
}  // namespace quench::gateway::expand_test
