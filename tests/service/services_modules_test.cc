// Modules that the services quantize, list, cut, tile and edit, and their inner values.
#include <gtest/gtest.h>

#include "tests/service/services_fixture.h"

namespace quench::services_test {
namespace {

using testing::HasSubstr;
using ServicesOfModules = Services;

TEST_P(ServicesOfModules, QuantizeWhatTheyHaveCalibrated) {
  namespace qpb = quantizer::v1;
  const auto imported = Import(DigitsRequest());
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = imported.result.canonical();
  transform.mutable_options()->set_batch(1);
  qpb::EqualizeRequest equalize;
  *equalize.mutable_module() = Transform(transform).result.module();
  const auto equalized = Call<qpb::Quantizer::Stub, qpb::EqualizeEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Equalize, equalize);
  ASSERT_TRUE(equalized.status.ok()) << equalized.status;
  EXPECT_GT(equalized.result.pairs(), 0);
  EXPECT_LT(equalized.result.remaining_spread(), equalized.result.spread());
  const auto build = [&](const step::v1::Module& module) {
    codegen::v1::CompileRequest compile = CompileFor(module);
    compile.mutable_options()->set_taps(true);
    compile.mutable_options()->set_opt_level(2);
    const auto compiled = Compile(compile);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status;
    return compiled.result.library();
  };
  qpb::CalibrateRequest calibrate;
  *calibrate.mutable_module() = equalized.result.module();
  *calibrate.mutable_tap_library() = build(calibrate.module());
  const auto sample = Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy");
  const auto run = [&] {
    return Call<qpb::Quantizer::Stub, qpb::CalibrateEvent>(
        *quantizer_, &qpb::Quantizer::Stub::Calibrate, calibrate);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples: missing"));
  *calibrate.mutable_samples()->mutable_manifest() = sample;
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples.manifest: the blob is not a serialised"));
  *calibrate.mutable_samples() = ManifestOf("sample.npy", Unknown());
  EXPECT_THAT(MessageOf(run().status), HasSubstr("blob is missing"));
  *calibrate.mutable_samples() = ManifestOf("digits/sample.npy", sample);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("`digits` has no file of input `image`"));
  *calibrate.mutable_samples() = ManifestOf("../sample.npy", sample);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples.manifest: paths must be relative"));
  *calibrate.mutable_samples() = ManifestOf("sample.npy", sample);
  const auto calibrated = run();
  ASSERT_TRUE(calibrated.status.ok()) << calibrated.status;
  EXPECT_EQ(calibrated.result.samples(), 8);
  *calibrate.mutable_statistics() = calibrated.result.statistics();
  const auto more = run();
  ASSERT_TRUE(more.status.ok()) << more.status;
  EXPECT_EQ(more.result.samples(), 16);
  *calibrate.mutable_statistics() = sample;
  EXPECT_THAT(MessageOf(run().status), HasSubstr("statistics: has no statistics"));

  qpb::QuantizeRequest quantize;
  *quantize.mutable_module() = calibrate.module();
  *quantize.mutable_statistics() = calibrated.result.statistics();
  quantize.mutable_options()->set_per_channel(true);
  quantize.mutable_options()->set_bias_correction(true);
  quantize.mutable_options()->set_source(qpb::RANGE_SOURCE_STATIC);
  const auto quantized = Call<qpb::Quantizer::Stub, qpb::QuantizeEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Quantize, quantize);
  ASSERT_TRUE(quantized.status.ok()) << quantized.status;
  EXPECT_EQ(quantized.result.layers_size(), 4);
  EXPECT_GT(quantized.result.corrected_biases(), 0);

  analyser::v1::CompareRequest compare;
  *compare.mutable_reference_library() = build(equalize.module());
  *compare.mutable_library() = build(quantized.result.module());
  *compare.mutable_samples() = calibrate.samples();
  compare.set_layers(true);
  const auto compared = Call<analyser::v1::Analyser::Stub, analyser::v1::CompareEvent>(
      *analyser_, &analyser::v1::Analyser::Stub::Compare, compare);
  ASSERT_TRUE(compared.status.ok()) << compared.status;
  EXPECT_EQ(compared.result.accuracy().agreement(), 1);
  EXPECT_GT(compared.result.outputs(0).sqnr_db(), 25);
  EXPECT_GT(compared.result.layers_size(), 2);
  EXPECT_THAT(Get(compared.result.report_json()), HasSubstr("sqnr_db"));
}

TEST_P(ServicesOfModules, ListAndPartitionModules) {
  namespace apb = analyser::v1;
  const auto imported = Import(DigitsRequest());
  apb::IntrospectRequest nodes;
  *nodes.mutable_module() = imported.result.canonical();
  const auto list = [&] {
    return Call<apb::Analyser::Stub, apb::IntrospectEvent>(*analyser_,
                                                           &apb::Analyser::Stub::Introspect, nodes);
  };
  nodes.add_operators("Con*");
  const auto listed = list();
  ASSERT_TRUE(listed.status.ok()) << listed.status;
  EXPECT_EQ(listed.result.summary().nodes_size(), 0);
  apb::ModuleFacts facts;
  ASSERT_TRUE(facts.ParseFromString(Get(listed.result.report())));
  ASSERT_EQ(facts.nodes_size(), 3);
  EXPECT_EQ(facts.nodes(0).attributes().at("pads"), "[1,1,1,1]");
  EXPECT_THAT(Get(listed.result.report_json()), HasSubstr("\"nodes\""));
  nodes.add_operators("Sin");
  EXPECT_THAT(MessageOf(list().status), HasSubstr("no node has an operator `Sin`"));

  apb::PartitionRequest partition;
  *partition.mutable_module() = imported.result.canonical();
  const auto cut = [&] {
    return Call<apb::Analyser::Stub, apb::PartitionEvent>(
        *analyser_, &apb::Analyser::Stub::Partition, partition);
  };
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("backend: "));
  partition.set_backend("npu");
  partition.add_operators("Conv");
  partition.add_operators("Convolve");
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("operators: "));
  partition.set_operators(1, "Relu");
  partition.mutable_options()->set_min_nodes(-1);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("options.min_nodes"));
  partition.clear_options();
  const auto parts = cut();
  ASSERT_TRUE(parts.status.ok()) << parts.status;
  ASSERT_EQ(parts.result.report().parts_size(), 3);
  importer::v1::ExportRequest out;
  *out.mutable_module() = parts.result.report().parts(0).module();
  EXPECT_TRUE((Call<importer::v1::Importer::Stub, importer::v1::ExportEvent>(
                   *importer_, &importer::v1::Importer::Stub::Export, out)
                   .status.ok()));
  partition.set_inline_parts(true);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("inline_parts"));
  partition.clear_backend();
  partition.clear_operators();
  *partition.mutable_module() = parts.result.module();
  const auto whole = cut();
  ASSERT_TRUE(whole.status.ok()) << whole.status;
  EXPECT_EQ(whole.result.inlined(), 3);
  EXPECT_EQ(whole.result.module().fingerprint(), imported.result.canonical().fingerprint());
  *partition.mutable_module() = imported.result.imported();
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("at stage `imported`"));
}

TEST_P(ServicesOfModules, TileProducts) {
  namespace apb = analyser::v1;
  apb::TileRequest tile;
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::TileEvent>(*analyser_, &apb::Analyser::Stub::Tile, tile);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("limits.m: is 0, must be from 1 to"));
  for (apb::ProductSizes* sizes : {tile.mutable_limits(), tile.mutable_gemm()}) {
    sizes->set_m(8);
    sizes->set_n(8);
    sizes->set_k(8);
  }
  *tile.mutable_module() = Import(DigitsRequest()).result.canonical();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("module: or `gemm`: one of them is given"));
  tile.clear_module();
  tile.mutable_gemm()->set_k(17);
  tile.set_samples(-1);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("samples: is -1"));
  tile.set_samples(3);
  const auto tiled = run();
  ASSERT_TRUE(tiled.status.ok()) << tiled.status;
  ASSERT_EQ(tiled.result.report().products_size(), 1);
  EXPECT_EQ(tiled.result.report().products(0).tiles().k(), 3);
  EXPECT_LE(tiled.result.report().error(), 1e-5);
  tile.set_tolerance(1e-30);
  EXPECT_THAT(MessageOf(run().status), HasSubstr("above the tolerance"));
}

TEST_P(ServicesOfModules, EditModules) {
  namespace apb = analyser::v1;
  apb::EditRequest edit;
  const auto imported = Import(DigitsRequest());
  *edit.mutable_module() = imported.result.canonical();
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::EditEvent>(*analyser_, &apb::Analyser::Stub::Edit, edit);
  };
  edit.set_script("remove");
  EXPECT_THAT(MessageOf(run().status), HasSubstr("script: script:1:7: a name was expected"));
  edit.set_script("remove relu3 constant %image = file \"picture.npy\"");
  EXPECT_THAT(MessageOf(run().status),
              HasSubstr("script: script:1:14: the request has no file `picture.npy`"));
  apb::EditFile* file = edit.add_files();
  file->set_file("picture.npy");
  *file->mutable_tensor() = edit.module().digest();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("files[0].tensor: "));
  *file->mutable_tensor() = Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy");
  const auto edited = run();
  ASSERT_TRUE(edited.status.ok()) << edited.status;
  EXPECT_EQ(edited.result.report().changes_size(), 2);
  EXPECT_NE(edited.result.module().fingerprint(), edit.module().fingerprint());
  *edit.mutable_module() = imported.result.imported();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("at stage `imported`"));
}

TEST_P(ServicesOfModules, ShowInnerValues) {
  namespace apb = analyser::v1;
  apb::InferRequest infer;
  *infer.mutable_module() = Import(DigitsRequest()).result.canonical();
  const auto run = [&] {
    return Call<apb::Analyser::Stub, apb::InferEvent>(*analyser_, &apb::Analyser::Stub::Infer,
                                                      infer);
  };
  EXPECT_THAT(MessageOf(run().status), HasSubstr("inputs: input `image` is missing"));
  infer.set_seed(1);
  infer.add_operators("Relu");
  infer.set_store_tensors(true);
  infer.set_store_images(true);
  const auto shown = run();
  ASSERT_TRUE(shown.status.ok()) << shown.status;
  ASSERT_EQ(shown.result.values_size(), 4);
  EXPECT_TRUE(shown.result.values(3).output());
  EXPECT_EQ(shown.result.values(0).statistics().min(), 0);
  EXPECT_THAT(Get(shown.result.values(0).image()), HasSubstr("PNG"));
  EXPECT_THAT(Get(shown.result.report_json()), HasSubstr("histogram"));

  // Its output is an input.
  apb::InferInput* input = infer.add_inputs();
  input->set_name("picture");
  *input->mutable_tensor() = shown.result.values(0).tensor();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("the model has no input `picture`"));
  input->set_name("image");
  EXPECT_THAT(MessageOf(run().status), HasSubstr("image"));  // of another shape
  *input->mutable_tensor() = shown.result.report_json();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("inputs[0].tensor: "));
  infer.clear_inputs();
  *infer.mutable_library() = shown.result.report_json();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("library"));
}

// Split, calibrated, tried with switches, and quantized as the trials say.
TEST_P(ServicesOfModules, KeepLayersInFloatWithinABudget) {
  namespace qpb = quantizer::v1;
  const auto imported = Import(DigitsRequest());
  importer::v1::TransformRequest transform;
  *transform.mutable_module() = imported.result.canonical();
  transform.mutable_options()->set_batch(1);
  const auto build = [&](const step::v1::Module& module, bool taps) {
    codegen::v1::CompileRequest compile = CompileFor(module);
    compile.mutable_options()->set_taps(taps);
    if (taps) compile.mutable_options()->set_opt_level(2);
    const auto compiled = Compile(compile);
    EXPECT_TRUE(compiled.status.ok()) << compiled.status;
    return compiled.result.library();
  };
  qpb::SplitTensorsRequest split;
  *split.mutable_module() = Transform(transform).result.module();
  split.set_parts(9);
  const auto cut = [&] {
    return Call<qpb::Quantizer::Stub, qpb::SplitTensorsEvent>(
        *quantizer_, &qpb::Quantizer::Stub::SplitTensors, split);
  };
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("9 parts, must be 2 to 8"));
  split.set_parts(2);
  split.set_least_gain(0.01);
  const auto parts = cut();
  ASSERT_TRUE(parts.status.ok()) << parts.status;
  ASSERT_GT(parts.result.layers_size(), 0);
  EXPECT_EQ(parts.result.layers(0).channels_size(), 2);

  qpb::CalibrateRequest calibrate;
  *calibrate.mutable_module() = parts.result.module();
  *calibrate.mutable_tap_library() = build(calibrate.module(), true);
  *calibrate.mutable_samples() = ManifestOf(
      "sample.npy", Put(std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits_sample.npy"));
  const auto calibrated = Call<qpb::Quantizer::Stub, qpb::CalibrateEvent>(
      *quantizer_, &qpb::Quantizer::Stub::Calibrate, calibrate);
  ASSERT_TRUE(calibrated.status.ok()) << calibrated.status;
  *split.mutable_module() = calibrate.module();
  *split.mutable_statistics() = calibrated.result.statistics();
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("force gives them up"));
  split.set_force(true);
  EXPECT_THAT(MessageOf(cut().status), HasSubstr("split already"));

  qpb::QuantizeRequest quantize;
  *quantize.mutable_module() = calibrate.module();
  *quantize.mutable_statistics() = calibrated.result.statistics();
  quantize.mutable_options()->set_switches(true);
  const auto run = [&] {
    return Call<qpb::Quantizer::Stub, qpb::QuantizeEvent>(
        *quantizer_, &qpb::Quantizer::Stub::Quantize, quantize);
  };
  const auto switched = run();
  ASSERT_TRUE(switched.status.ok()) << switched.status;
  qpb::SelectRequest select;
  *select.mutable_module() = switched.result.module();
  *select.mutable_library() = build(select.module(), false);
  *select.mutable_samples() = calibrate.samples();
  const auto choose = [&] {
    return Call<qpb::Quantizer::Stub, qpb::SelectEvent>(*quantizer_, &qpb::Quantizer::Stub::Select,
                                                        select);
  };
  EXPECT_THAT(MessageOf(choose().status), HasSubstr("no budget"));
  select.mutable_budget()->set_min_sqnr_db(300);
  EXPECT_THAT(MessageOf(choose().status), HasSubstr("can be in integers"));
  const double all = [&] {
    select.mutable_budget()->set_min_sqnr_db(-100);
    return choose().result.report().cost().sqnr_db();
  }();
  EXPECT_GT(all, 10);
  select.mutable_budget()->set_min_sqnr_db(all + 1);
  const auto selected = choose();
  ASSERT_TRUE(selected.status.ok()) << selected.status;
  EXPECT_GE(selected.result.report().cost().sqnr_db(), all + 1);
  EXPECT_EQ(selected.result.report().samples(), 8);

  quantize.mutable_options()->set_switches(false);
  *quantize.mutable_selection() = calibrate.samples().manifest();
  EXPECT_THAT(MessageOf(run().status), HasSubstr("selection: is not a result of Select"));
  *quantize.mutable_selection() = selected.result.selection();
  const auto quantized = run();
  ASSERT_TRUE(quantized.status.ok()) << quantized.status;
  int kept = 0, sensitive = 0;
  for (const qpb::LayerChoice& layer : quantized.result.layers()) kept += !layer.quantized();
  for (const auto& layer : selected.result.report().layers()) sensitive += layer.kept();
  EXPECT_EQ(kept, sensitive);
  EXPECT_GT(kept, 0);
}

INSTANTIATE_TEST_SUITE_P(Isolation, ServicesOfModules, ::testing::Values(false, true),
                         [](const auto& isolation) {
                           return isolation.param ? "OnThreads" : "InProcesses";
                         });

}  // namespace
}  // namespace quench::services_test
