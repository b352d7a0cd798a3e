#include <algorithm>
#include <filesystem>
#include <set>

#include "common/base/status.h"
#include "common/runner/device.h"
#include "services/gateway/expand.h"

namespace quench::gateway::internal {
namespace {

constexpr char kNameRule[] = "must be 1 to 255 letters, digits, `_`, `-` and `.`";

void Bind(v1::StepSpec* spec, v1::Port input, const std::string& step, v1::Port output) {
  v1::Binding* binding = spec->add_bindings();
  binding->set_input(input);
  binding->set_step(step);
  binding->set_output(output);
}

// Steps as they are written out. Cells repeat what a choice says, so that a small request may ask for
// gigabytes: what goes over the limit is dropped at once.
class StepWriter {
 public:
  explicit StepWriter(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // To be filled in before the next one is added.
  v1::StepSpec* Add(std::string name) {
    Count();
    v1::StepSpec* spec = full_ ? &dropped_ : list_.add_steps();
    if (full_) spec->Clear();
    spec->set_name(std::move(name));
    return spec;
  }
  bool full() const { return full_; }
  // Everything added so far will be added `times` times: an excess is known before it is there.
  void WillRepeat(int times) {
    Count();
    if (used_ > max_bytes_ / std::max(times, 1)) Drop();
  }
  // None when they did not fit.
  v1::StepList Finish(const std::string& path, Violations* violations) {
    Count();
    if (!full_) return std::move(list_);
    AddTooLarge(path, max_bytes_, violations);
    return {};
  }

 private:
  void Count() {
    for (; counted_ < list_.steps_size(); ++counted_)
      used_ += static_cast<int64_t>(list_.steps(counted_).SpaceUsedLong());
    if (used_ > max_bytes_) Drop();
  }
  void Drop() {
    full_ = true;
    v1::StepList().Swap(&list_);  // Clear would keep the memory
    counted_ = 0;
  }

  v1::StepList list_;
  v1::StepSpec dropped_;
  const int64_t max_bytes_;
  int64_t used_ = 0;
  int counted_ = 0;
  bool full_ = false;
};

void AddImport(const v1::BatchModel& model, StepWriter* list) {
  v1::StepSpec* spec = list->Add(model.name() + "/import");
  *spec->mutable_import_model()->mutable_model() = model.model();
  if (model.has_import_options()) {
    *spec->mutable_import_model()->mutable_options() = model.import_options();
  }
}

void CheckName(const std::string& name, const std::string& path, std::set<std::string>* names,
               Violations* violations) {
  if (!IsStepName(name, false)) {
    violations->Add(path, fmt::format("is `{}`, {}", name, kNameRule));
  } else if (!names->insert(name).second) {
    violations->Add(path, fmt::format("is `{}`, as another one's: names must be unique", name));
  }
}

void CheckModels(const google::protobuf::RepeatedPtrField<v1::BatchModel>& models,
                 const std::string& path, Violations* violations) {
  if (models.empty()) violations->Add(path, "is empty, a batch needs at least one model");
  std::set<std::string> names;
  for (int i = 0; i < models.size(); ++i) {
    const v1::BatchModel& model = models[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    CheckName(model.name(), at + ".name", &names, violations);
    if (model.source_case() == v1::BatchModel::SOURCE_NOT_SET) {
      violations->Add(at, "has neither `model` nor `module`, one of them must be there");
    }
    if (model.has_model() && !model.model().has_file()) {
      violations->Add(at + ".model.file", "is missing");
    }
    if (model.has_module() && !model.module().has_digest()) {
      violations->Add(at + ".module.digest", "is missing");
    }
    if (model.has_module() && model.has_import_options()) {
      violations->Add(at + ".import_options", "is given for a module, which is not imported");
    }
  }
}

bool IsUuid(std::string text) {
  std::erase(text, '-');
  return text.size() == 32 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

void CheckUuid(const v1::CompileChoice& choice, const std::string& path, int cells,
               std::set<std::string>* uuids, Violations* violations) {
  if (choice.uuid().empty()) return;
  if (!IsUuid(choice.uuid())) {
    violations->Add(path, fmt::format("is `{}`, must be 32 hex digits", choice.uuid()));
  } else if (cells != 1) {
    violations->Add(path, fmt::format("stamps one library, and {} come of these options", cells));
  } else if (!uuids->insert(choice.uuid()).second) {
    violations->Add(path, "is that of other options too, a UUID stamps one library");
  } else if (!choice.passes().stop_after().empty()) {
    violations->Add(path, "stamps a library, and with `passes.stop_after` there is none");
  }
}

// The part of step names that stands for a target.
std::string LabelOf(const codegen::v1::Target& target) {
  return target.label().empty() ? target.name() : target.label();
}

void CheckTargets(const v1::CompileBatch& batch, const std::string& path, Violations* violations) {
  const auto& choices = batch.choices();
  const bool compiles =
      choices.empty() ||
      std::any_of(choices.begin(), choices.end(), [](const v1::CompileChoice& choice) {
        return !choice.has_quantize() && choice.passes().stop_after().empty();
      });
  if (batch.targets().empty() && compiles)
    violations->Add(path, "is empty, a batch needs at least one target");
  std::set<std::string> names;
  for (int i = 0; i < batch.targets_size(); ++i) {
    const codegen::v1::Target& target = batch.targets(i);
    const std::string at = fmt::format("{}[{}]", path, i);
    const std::string label = LabelOf(target);
    if (target.name().empty()) violations->Add(at + ".name", "is missing");
    if (!target.label().empty() && !IsStepName(target.label(), true)) {
      violations->Add(
          at + ".label",
          fmt::format("is `{}`, must be letters, digits, `.`, `_`, `-` and `/`", target.label()));
    } else if (!IsStepName(label, true)) {
      violations->Add(at + ".name",
                      fmt::format("is `{}`, must be a name of ListTargets, or have a `label` that "
                                  "names its steps",
                                  target.name().substr(0, 100)));
    } else if (!names.insert(label).second) {
      violations->Add(at + ".name",
                      fmt::format("is `{}`, as another one's: names must be unique", label));
    }
    if (target.name() == "host" && !target.has_host()) {
      violations->Add(at + ".host", "is missing, and the name is `host`");
    }
  }
}

// The name of the model's file without its ending, or, where it has no file, its name in the batch. A module as a
// text has two endings. Names that are too long for a header are left to codegen.
std::string NameOf(const v1::BatchModel& model) {
  constexpr size_t kMostBytes = 255;
  const std::filesystem::path file = model.model().name();
  const std::filesystem::path stem = file.extension() == ".txt" ? file.stem().stem() : file.stem();
  const std::string name = file.empty() ? model.name() : stem.string();
  return name.size() > kMostBytes ? "" : name;
}

// `transform` gives the module that is compiled; what the library should compute comes from the step
// `reference`, or is the module of `model`.
void AddCompile(const v1::CompileChoice& choice, const codegen::v1::Target& target,
                const std::string& prefix, const std::string& transform,
                const std::string& reference, const v1::BatchModel& model, StepWriter* list) {
  const std::string compile = prefix + "/compile";
  v1::StepSpec* spec = list->Add(compile);
  codegen::v1::CompileRequest* request = spec->mutable_compile();
  *request->mutable_target() = target;
  request->mutable_target()->clear_label();
  *request->mutable_options() = choice.compile_options();
  request->mutable_options()->clear_passes();
  if (choice.has_passes()) *request->mutable_options()->mutable_passes() = choice.passes();
  if (choice.compile_options().header_prefix().empty())
    request->mutable_options()->set_header_prefix(NameOf(model));
  Bind(spec, v1::PORT_MODULE, transform, v1::PORT_MODULE);
  if (request->options().check() != codegen::v1::CHECK_NO && !request->options().taps()) {
    if (reference.empty()) {
      *request->mutable_reference() = model.module();
    } else {
      const bool imported = !choice.has_quantize();
      Bind(spec, v1::PORT_REFERENCE, reference, imported ? v1::PORT_CANONICAL : v1::PORT_MODULE);
    }
  }
  if (choice.uuid().empty()) return;
  v1::StepSpec* package = list->Add(prefix + "/package");
  package->mutable_package_library()->set_uuid(choice.uuid());
  Bind(package, v1::PORT_LIBRARY, compile, v1::PORT_LIBRARY);
  Bind(package, v1::PORT_HEADER, compile, v1::PORT_HEADER);
}

// The steps between the passes of a choice and its compilation, and the name of the step that gives
// the module to compile.
class QuantizeSteps {
 public:
  QuantizeSteps(const v1::CompileChoice& choice, std::string prefix, std::string module,
                StepWriter* list)
      : how_(choice.quantize()),
        passes_(choice.passes()),
        prefix_(std::move(prefix)),
        module_(std::move(module)),
        list_(list) {}

  std::string Write() {
    if (how_.equalize()) {
      v1::StepSpec* spec = Next("equalize", module_, &module_);
      spec->mutable_equalize();
    }
    if (how_.has_outlier_share()) {
      v1::StepSpec* spec = Next("outliers", module_, &module_);
      spec->mutable_split_outliers()->set_share(how_.outlier_share());
    }
    if (how_.split_parts() != 0) {
      v1::StepSpec* spec = Next("split", module_, &module_);
      spec->mutable_split_tensors()->set_parts(how_.split_parts());
    }
    if (how_.has_calibrate() || how_.has_adapt_rounding()) taps_ = Build("taps", module_, true);
    if (how_.has_calibrate()) Calibrate();
    if (how_.has_adapt_rounding()) AdaptRounding();
    if (how_.has_select()) Select();
    std::string quantized;
    v1::StepSpec* quantize = Quantize("quantize", false, &quantized);
    if (how_.has_select())
      Bind(quantize, v1::PORT_SELECTION, prefix_ + "/select", v1::PORT_SELECTION);
    v1::StepSpec* optimise = Next("optimise", quantized, &quantized);
    *optimise->mutable_transform()->mutable_options() = passes_;
    // Set already, and the batch of a quantized module is what its statistics are of.
    optimise->mutable_transform()->mutable_options()->clear_batch();
    return quantized;
  }

 private:
  // A step whose `module` another gives.
  v1::StepSpec* Next(const std::string& name, const std::string& from, std::string* called) {
    v1::StepSpec* spec = list_->Add(prefix_ + "/" + name);
    Bind(spec, v1::PORT_MODULE, from, v1::PORT_MODULE);
    *called = spec->name();
    return spec;
  }
  v1::StepSpec* Quantize(const std::string& name, bool switches, std::string* called) {
    v1::StepSpec* spec = Next(name, module_, called);
    quantizer::v1::QuantizeRequest* request = spec->mutable_quantize();
    *request->mutable_options() = how_.options();
    request->mutable_options()->set_switches(switches);
    if (how_.has_statistics()) *request->mutable_statistics() = how_.statistics();
    if (how_.has_calibrate())
      Bind(spec, v1::PORT_STATISTICS, prefix_ + "/calibrate", v1::PORT_STATISTICS);
    if (how_.has_adapt_rounding())
      Bind(spec, v1::PORT_ROUNDING, prefix_ + "/round", v1::PORT_ROUNDING);
    return spec;
  }
  // A build that the quantizer runs.
  std::string Build(const std::string& name, const std::string& from, bool taps) {
    std::string called;
    codegen::v1::CompileRequest* request = Next(name, from, &called)->mutable_compile();
    if (how_.has_trial_target()) {
      *request->mutable_target() = how_.trial_target();
    } else {
      // Newer GPUs run the code of sm_75; the host is x86-64 without being asked for.
      const bool on_gpu = taps && GpuOf(how_.calibrate().device()).has_value();
      request->mutable_target()->set_name(on_gpu ? "cuda -arch=sm_75" : "x86-64");
    }
    request->mutable_options()->set_opt_level(taps ? 2 : 3);  // with taps every value is seen
    request->mutable_options()->set_taps(taps);
    request->mutable_options()->set_check(codegen::v1::CHECK_NO);  // nobody is given it
    *request->mutable_options()->mutable_passes()->mutable_disabled() = passes_.disabled();
    return called;
  }
  void Calibrate() {
    std::string called;
    v1::StepSpec* spec = Next("calibrate", module_, &called);
    *spec->mutable_calibrate() = how_.calibrate();
    spec->mutable_calibrate()->clear_module();
    spec->mutable_calibrate()->clear_tap_library();
    Bind(spec, v1::PORT_TAP_LIBRARY, taps_, v1::PORT_LIBRARY);
  }
  void AdaptRounding() {
    std::string called;
    v1::StepSpec* spec = Next("round", module_, &called);
    *spec->mutable_adapt_rounding() = how_.adapt_rounding();
    spec->mutable_adapt_rounding()->clear_module();
    spec->mutable_adapt_rounding()->clear_tap_library();
    *spec->mutable_adapt_rounding()->mutable_options() = how_.options();
    Bind(spec, v1::PORT_TAP_LIBRARY, taps_, v1::PORT_LIBRARY);
  }
  void Select() {
    std::string switched, called;
    Quantize("switched", true, &switched);
    const std::string trials = Build("trials", switched, false);
    v1::StepSpec* spec = Next("select", switched, &called);
    *spec->mutable_select() = how_.select();
    spec->mutable_select()->clear_module();
    spec->mutable_select()->clear_library();
    Bind(spec, v1::PORT_LIBRARY, trials, v1::PORT_LIBRARY);
  }

  const v1::QuantizeChoice& how_;
  const step::v1::PassOptions& passes_;
  const std::string prefix_;
  std::string module_;  // the step that gives it
  std::string taps_;    // the step that builds with taps, where there is one
  StepWriter* list_;
};

void AddCells(const v1::CompileBatch& batch, const v1::BatchModel& model, StepWriter* list) {
  if (model.has_model()) AddImport(model, list);
  for (const v1::CompileChoice& choice : batch.choices()) {
    if (list->full()) return;
    const std::string prefix = model.name() + "/" + choice.name();
    const std::string transform = prefix + "/transform";
    v1::StepSpec* spec = list->Add(transform);
    *spec->mutable_transform()->mutable_options() = choice.passes();
    if (model.has_model()) {
      Bind(spec, v1::PORT_MODULE, model.name() + "/import", v1::PORT_CANONICAL);
    } else {
      *spec->mutable_transform()->mutable_module() = model.module();
    }
    if (!choice.passes().stop_after().empty()) continue;
    const std::string module =
        choice.has_quantize() ? QuantizeSteps(choice, prefix, transform, list).Write() : transform;
    const std::string reference = choice.has_quantize() ? prefix + "/quantize"
                                  : model.has_model()   ? model.name() + "/import"
                                                        : "";
    for (const codegen::v1::Target& target : batch.targets()) {
      if (list->full()) return;
      AddCompile(choice, target, prefix + "/" + LabelOf(target), module, reference, model, list);
    }
  }
}

// An import where there is a model, its batch size where one is asked for, the analysis.
void AddAnalyse(const v1::AnalyseBatch& batch, const v1::BatchModel& model, StepWriter* list) {
  const std::string imported = model.name() + "/import", resized = model.name() + "/batch";
  if (model.has_model()) AddImport(model, list);
  if (batch.batch() != 0) {
    v1::StepSpec* spec = list->Add(resized);
    importer::v1::TransformRequest* request = spec->mutable_transform();
    request->mutable_options()->set_batch(batch.batch());
    request->add_passes("set_batch_size");
    if (model.has_model()) {
      Bind(spec, v1::PORT_MODULE, imported, v1::PORT_CANONICAL);
    } else {
      *request->mutable_module() = model.module();
    }
  }
  v1::StepSpec* spec = list->Add(model.name() + "/analyse");
  analyser::v1::AnalyseRequest* request = spec->mutable_analyse();
  *request->mutable_sizes() = batch.sizes();
  request->set_weight_statistics(batch.weight_statistics());
  if (batch.has_ceilings()) *request->mutable_ceilings() = batch.ceilings();
  request->set_page(batch.page());
  if (model.has_model()) {
    Bind(spec, v1::PORT_IMPORTED, imported, v1::PORT_IMPORTED);
  } else {
    *request->mutable_imported() = model.module();
  }
  if (batch.batch() != 0) {
    Bind(spec, v1::PORT_CANONICAL, resized, v1::PORT_MODULE);
  } else if (model.has_model()) {
    Bind(spec, v1::PORT_CANONICAL, imported, v1::PORT_CANONICAL);
  } else {
    *request->mutable_canonical() = model.module();
  }
}

}  // namespace

v1::StepList WriteOut(const v1::CompileBatch& batch, int64_t max_bytes, Violations* violations) {
  const std::string path = "spec.compile";
  CheckModels(batch.models(), path + ".models", violations);
  CheckTargets(batch, path + ".targets", violations);
  if (batch.choices().empty()) {
    violations->Add(path + ".choices", "is empty, a batch needs at least one set of options");
  }
  std::set<std::string> names, uuids;
  for (int i = 0; i < batch.choices_size(); ++i) {
    const std::string at = fmt::format("{}.choices[{}]", path, i);
    CheckName(batch.choices(i).name(), at + ".name", &names, violations);
    if (batch.choices(i).has_quantize() && !batch.choices(i).passes().stop_after().empty()) {
      violations->Add(at + ".quantize",
                      "comes after all passes, and `passes.stop_after` ends them");
    }
    CheckUuid(batch.choices(i), at + ".uuid", batch.models_size() * batch.targets_size(), &uuids,
              violations);
  }
  // Bounded before it is written out: three short lists may ask for millions of steps.
  const double cells =
      double{1} * batch.models_size() * batch.choices_size() * std::max(1, batch.targets_size());
  if (cells > kMaxSteps) {
    violations->Add(path, fmt::format("asks for {:.0f} libraries, a workflow has at most {} steps",
                                      cells, kMaxSteps));
  }
  if (!violations->empty()) return {};
  StepWriter steps(max_bytes);
  for (const v1::BatchModel& model : batch.models()) {
    AddCells(batch, model, &steps);
    if (&model == &batch.models(0)) steps.WillRepeat(batch.models_size());
    if (steps.full()) break;
  }
  return steps.Finish(path, violations);
}

v1::StepList WriteOut(const v1::AnalyseBatch& batch, int64_t max_bytes, Violations* violations) {
  CheckModels(batch.models(), "spec.analyse.models", violations);
  if (batch.batch() < 0)
    violations->Add("spec.analyse.batch",
                    fmt::format("is {}, must not be negative", batch.batch()));
  if (!violations->empty() || batch.models_size() > kMaxSteps) {
    if (batch.models_size() > kMaxSteps) {
      violations->Add("spec.analyse.models", fmt::format("has {} models, a workflow has at most {} "
                                                         "steps",
                                                         batch.models_size(), kMaxSteps));
    }
    return {};
  }
  StepWriter steps(max_bytes);
  for (const v1::BatchModel& model : batch.models()) AddAnalyse(batch, model, &steps);
  return steps.Finish("spec.analyse", violations);
}

}  // namespace quench::gateway::internal
