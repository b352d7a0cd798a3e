// The four services in this process, their steps in the real binaries.
#pragma once

#include <grpcpp/channel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "common/base/files.h"
#include "common/blobs/digest.h"
#include "common/rpc/channel.h"
#include "common/rpc/errors.h"
#include "common/steps/host.h"
#include "common/steps/modules.h"
#include "common/steps/storage.h"
#include "quench/analyser/v1/analyser.grpc.pb.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"
#include "quench/importer/v1/importer.grpc.pb.h"
#include "quench/quantizer/v1/quantizer.grpc.pb.h"
#include "services/analyser/service.h"
#include "services/codegen/codegen.h"
#include "services/codegen/service.h"
#include "services/importer/service.h"
#include "services/quantizer/service.h"
#include "tests/support/matchers.h"
#include "tests/support/wait.h"

namespace quench::services_test {

inline const std::string kDigits = std::string(QUENCH_SOURCE_DIR) + "/bench/models/digits.onnx";

template <typename Result>
struct Seen {
  absl::Status status;
  bool accepted = false;
  std::vector<std::string> stages;
  Result result;
};

class Services : public ::testing::TestWithParam<bool> {
 protected:
  Services() {
    config_.mutable_folder()->append((folder_.path() / "store").string());
    storage_ = *steps::OpenStorage(config_, true);
    importer_ = Start(importer::ImporterDefinition());
    analyser_ = Start(analyser::AnalyserDefinition());
    codegen_ = Start(codegen::CodegenDefinition());
    quantizer_ = Start(quantizer::QuantizerDefinition());
  }

  std::unique_ptr<steps::ServiceHost> Start(const steps::ServiceDefinition& definition) {
    steps::ServiceHost::Options options;
    options.config.server.set_listen("127.0.0.1:0");
    *options.config.blobs.mutable_folder() = config_.folder();
    options.config.steps.set_slots(2);
    if (GetParam()) options.config.steps.set_isolation(config::v1::ISOLATION_NONE);
    options.config.steps.set_scratch_dir(scratch_.string());
    options.config.steps.set_memory_bytes(memory_bytes_);
    options.config.server.mutable_grace()->set_seconds(grace_.count());
    options.probe_period = probe_period_;
    options.program = std::string(QUENCH_BINARIES) + "/quench-" + definition.name;
    options.registry = &registry_;
    auto host = steps::ServiceHost::Start(definition, std::move(options));
    EXPECT_TRUE(host.ok()) << host.status();
    return *std::move(host);
  }

  // A step through a channel of its own, as any client calls it.
  template <typename Stub, typename Event, typename Request, typename Method>
  auto Call(steps::ServiceHost& host, Method method, const Request& request,
            const StepContext& step = {}) {
    rpc::ChannelOptions options;
    options.address = host.server().address();
    const auto channel = *rpc::Channel::Open(options);
    Stub stub(channel->grpc());
    rpc::ClientCall call(*channel, step);
    const std::unique_ptr<grpc::ClientReader<Event>> reader =
        (stub.*method)(call.context(), request);
    Seen<std::remove_cvref_t<decltype(Event().result())>> seen;
    for (Event event; reader->Read(&event);) {
      if (event.has_accepted()) seen.accepted = true;
      if (event.has_progress()) seen.stages.push_back(event.progress().stage());
      if (event.has_result()) seen.result = event.result();
    }
    seen.status = rpc::FromGrpc(reader->Finish());
    return seen;
  }

  steps::BlobDigest Put(const std::filesystem::path& path) {
    return *steps::StoreBytes(*ReadFile(path), (*storage_("default"))->local());
  }
  // The digest of a blob that nobody stored.
  static steps::BlobDigest Unknown() {
    steps::BlobDigest digest;
    digest.set_hash(Sha256Hex("unknown"));
    digest.set_size_bytes(7);
    return digest;
  }
  // One file under a path of its own.
  step::v1::Samples ManifestOf(const std::string& path, const steps::BlobDigest& digest) {
    step::v1::SampleManifest manifest;
    step::v1::File* file = manifest.add_files();
    file->set_path(path);
    *file->mutable_digest() = digest;
    step::v1::Samples samples;
    *samples.mutable_manifest() =
        *steps::StoreBytes(manifest.SerializeAsString(), (*storage_("default"))->local());
    return samples;
  }
  std::string Get(const steps::BlobDigest& digest) {
    const auto file = (*storage_("default"))->local().Open(digest.hash());
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return "";
    EXPECT_EQ((*file)->bytes().size(), static_cast<size_t>(digest.size_bytes()));
    return {reinterpret_cast<const char*>((*file)->bytes().data()), (*file)->bytes().size()};
  }

  auto Import(const importer::v1::ImportRequest& request) {
    return Call<importer::v1::Importer::Stub, importer::v1::ImportEvent>(
        *importer_, &importer::v1::Importer::Stub::Import, request);
  }
  importer::v1::ImportRequest DigitsRequest() {
    importer::v1::ImportRequest request;
    *request.mutable_model()->mutable_file() = Put(kDigits);
    request.mutable_model()->set_name("digits.onnx");
    return request;
  }
  auto Transform(const importer::v1::TransformRequest& request) {
    return Call<importer::v1::Importer::Stub, importer::v1::TransformEvent>(
        *importer_, &importer::v1::Importer::Stub::Transform, request);
  }
  auto Compile(const codegen::v1::CompileRequest& request) {
    return Call<codegen::v1::Codegen::Stub, codegen::v1::CompileEvent>(
        *codegen_, &codegen::v1::Codegen::Stub::Compile, request);
  }
  codegen::v1::CompileRequest CompileFor(const step::v1::Module& module) {
    codegen::v1::CompileRequest request;
    *request.mutable_module() = module;
    request.mutable_target()->set_name("host");
    const codegen::HostCpu cpu = codegen::ThisCpu();
    request.mutable_target()->mutable_host()->set_machine(cpu.machine);
    request.mutable_target()->mutable_host()->mutable_features()->Assign(cpu.features.begin(),
                                                                         cpu.features.end());
    request.mutable_target()->mutable_host()->set_l1_bytes(cpu.l1_bytes);
    request.mutable_target()->mutable_host()->set_l2_bytes(cpu.l2_bytes);
    return request;
  }
  step::v1::Module Ready() {
    const auto imported = Import(DigitsRequest());
    EXPECT_TRUE(imported.status.ok()) << imported.status;
    importer::v1::TransformRequest request;
    *request.mutable_module() = imported.result.canonical();
    const auto transformed = Transform(request);
    EXPECT_TRUE(transformed.status.ok()) << transformed.status;
    return transformed.result.module();
  }

  TempDir folder_ = *TempDir::Create();
  std::filesystem::path scratch_ = folder_.path() / "scratch";
  std::chrono::seconds grace_{30};
  int64_t memory_bytes_ = 0;  // the default
  std::chrono::milliseconds probe_period_{10'000};
  metrics::Registry registry_;
  config::v1::BlobStore config_;
  steps::StepRunner::StorageOf storage_;
  std::unique_ptr<steps::ServiceHost> importer_, analyser_, codegen_, quantizer_;
};

}  // namespace quench::services_test
