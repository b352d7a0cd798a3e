#include "services/codegen/service.h"

#include "common/rpc/errors.h"
#include "common/steps/modules.h"
#include "quench/codegen/v1/codegen.grpc.pb.h"
#include "services/codegen/codegen.h"
#include "services/codegen/measure.h"
#include "services/codegen/options_proto.h"
#include "services/codegen/package.h"
#include "services/codegen/report_proto.h"
#include "services/codegen/targets/resolve.h"

namespace quench::codegen {
namespace {

// Its own messages beside ours of the same names.
namespace pb = ::quench::codegen::v1;

using rpc::FieldError;
using steps::Workplace;

// Errors in a target string, which would otherwise be taken for a name that needs no CPU of the
// caller.
absl::Status CheckStrings(const CompileOptions& options) {
  for (const auto& [field, text] : {std::pair("target.name", &options.target),
                                    std::pair("target.host_target", &options.host_target)}) {
    if (!IsTargetSpec(*text)) continue;
    const absl::StatusOr<TargetSpec> spec = ParseTargetSpec(*text);
    if (!spec.ok()) return FieldError(field, MessageOf(spec.status()));
  }
  return absl::OkStatus();
}

absl::StatusOr<passes::PassOptions> PassesOf(const step::v1::PassOptions& asked) {
  passes::PassOptions options;
  options.batch = asked.batch();
  options.disabled = {asked.disabled().begin(), asked.disabled().end()};
  options.stop_after = asked.stop_after();
  QUENCH_ASSIGN_OR_RETURN(options.store_as, steps::StoredType(asked, "options.passes"));
  for (const step::v1::ValueMagnitude& value : asked.magnitudes())
    options.magnitudes[value.value()] = value.magnitude();
  return options;
}

// The client's CPU, if the target is about it.
absl::Status TakeCaller(const pb::Target& target, CompileOptions& options) {
  const bool needs_caller = NeedsCaller(options.target) || NeedsCaller(options.host_target);
  if (needs_caller && !target.has_host()) {
    return FieldError(
        "target.host",
        "missing: `host`, a string without a triple, or `cuda` without an arch is about the "
        "caller's machine, which must be described");
  }
  if (!needs_caller && target.has_host()) {
    return FieldError("target.host", fmt::format("given with target `{}`, which says all itself",
                                                 options.target.substr(0, 64)));
  }
  if (!needs_caller) return absl::OkStatus();
  const pb::Cpu& cpu = target.host();
  options.caller = HostCpu{cpu.machine(),
                           {cpu.features().begin(), cpu.features().end()},
                           cpu.l1_bytes(),
                           cpu.l2_bytes(),
                           cpu.gpu()};
  return absl::OkStatus();
}

absl::StatusOr<CompileOptions> OptionsOf(const pb::CompileRequest& request) {
  if (request.target().name().empty())
    return FieldError("target.name", "missing; ListTargets has them");
  QUENCH_ASSIGN_OR_RETURN(CompileOptions options, FromProto(request.options()));
  options.target = request.target().name();
  options.host_target = request.target().host_target();
  QUENCH_RETURN_IF_ERROR(CheckStrings(options));
  QUENCH_RETURN_IF_ERROR(TakeCaller(request.target(), options));
  QUENCH_ASSIGN_OR_RETURN(options.passes, PassesOf(request.options().passes()));
  return options;
}

// As `quench compile` calls it: the library knows its own name.
std::string LibraryName(Emit emit) {
  return emit == Emit::kObject ? "model.o" : emit == Emit::kArchive ? "model.a" : "model.so";
}

// Measured choices hold only for CPUs like this one, and so does whether code could run at all.
steps::Caching CachingOf(const pb::CompileRequest& request) {
  const bool of_this_cpu =
      request.options().opt_level() == 4 || request.options().check() == pb::CHECK_FULL;
  return of_this_cpu ? steps::Caching::kOfThisCpu : steps::Caching::kPure;
}

absl::StatusOr<pb::CompileResult> CompileStep(const pb::CompileRequest& request,
                                              const Workplace& place, const StepContext& context) {
  QUENCH_ASSIGN_OR_RETURN(CompileOptions options, OptionsOf(request));
  QUENCH_ASSIGN_OR_RETURN(const Graph graph,
                          steps::LoadModule(request.module(), "module", place.blobs));
  Graph reference;
  if (request.has_reference() && options.check != CheckMode::kNo) {
    QUENCH_ASSIGN_OR_RETURN(reference,
                            steps::LoadModule(request.reference(), "reference", place.blobs));
    options.check_source = &reference;
  }
  QUENCH_ASSIGN_OR_RETURN(const Emit emit, WhatToEmit(options));
  const std::filesystem::path library = place.scratch / LibraryName(emit);
  const std::filesystem::path header = place.scratch / "model.h";
  QUENCH_ASSIGN_OR_RETURN(const CompileReport report,
                          CompileMeasured(graph, options, library, header, context));
  pb::CompileResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_library(),
                          steps::MoveFile(library, place.blobs, context));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_header(), steps::MoveFile(header, place.blobs, context));
  *result.mutable_summary() = ToProto(report);
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_report(),
                          steps::StoreBytes(result.summary().SerializeAsString(), place.blobs));
  result.mutable_summary()->clear_kernels();
  return result;
}

// `library` with its stamp, piece by piece.
absl::StatusOr<steps::BlobDigest> StoreStamped(std::span<const std::byte> library,
                                               const Stamped& stamped, LocalBlobStore& blobs,
                                               const StepContext& context) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, blobs.Create());
  const auto uuid = std::as_bytes(std::span(stamped.uuid));
  for (auto rest :
       {library.first(stamped.offset), uuid, library.subspan(stamped.offset + uuid.size())}) {
    while (!rest.empty()) {
      QUENCH_RETURN_IF_ERROR(context.Check());
      const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
      QUENCH_RETURN_IF_ERROR(writer->Append(piece));
      rest = rest.subspan(piece.size());
    }
  }
  steps::BlobDigest digest;
  digest.set_size_bytes(static_cast<int64_t>(writer->size()));
  QUENCH_ASSIGN_OR_RETURN(*digest.mutable_hash(), writer->Commit());
  return digest;
}

absl::StatusOr<pb::PackageResult> PackageStep(const pb::PackageRequest& request,
                                              const Workplace& place, const StepContext& context) {
  if (!request.has_library()) return FieldError("library", "missing, must be a library's digest");
  if (!request.has_header()) return FieldError("header", "missing, must be its header's digest");
  QUENCH_ASSIGN_OR_RETURN(const auto library, place.blobs.Open(request.library().hash()));
  QUENCH_ASSIGN_OR_RETURN(const auto header, place.blobs.Open(request.header().hash()));
  QUENCH_RETURN_IF_ERROR(context.Check());
  QUENCH_ASSIGN_OR_RETURN(const Stamped stamped,
                          StampUuid(library->bytes(), header->bytes(), request.uuid()));
  pb::PackageResult result;
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_library(),
                          StoreStamped(library->bytes(), stamped, place.blobs, context));
  QUENCH_ASSIGN_OR_RETURN(*result.mutable_header(), steps::StoreBytes(stamped.header, place.blobs));
  return result;
}

absl::StatusOr<pb::ListTargetsResponse> ListTargetsCall(const pb::ListTargetsRequest& request,
                                                        const StepContext&) {
  pb::ListTargetsResponse response;
  QUENCH_ASSIGN_OR_RETURN(const std::vector<TargetInfo> targets,
                          ListTargets(request.kind().empty() ? "all" : request.kind()));
  for (const TargetInfo& target : targets) {
    pb::TargetInfo* out = response.add_targets();
    out->set_name(target.name);
    out->set_triple(target.triple);
    out->mutable_variants()->Assign(target.variants.begin(), target.variants.end());
    out->set_description(target.description);
    out->set_kind(target.kind);
    out->mutable_strings()->Assign(target.strings.begin(), target.strings.end());
  }
  return response;
}

class CodegenService final : public pb::Codegen::CallbackService {
 public:
  CodegenService(const steps::ServiceParts& parts, const std::vector<steps::Step>& list)
      : compile_(parts, list[0]),
        package_(parts, list[1]),
        list_targets_(parts.control, pb::Codegen::service_full_name(), "ListTargets",
                      metrics::GrpcType::kUnary) {}

 private:
  grpc::ServerWriteReactor<pb::CompileEvent>* Compile(grpc::CallbackServerContext* context,
                                                      const pb::CompileRequest* request) override {
    return compile_.Serve<pb::CompileEvent>(context, request);
  }
  grpc::ServerWriteReactor<pb::PackageEvent>* Package(grpc::CallbackServerContext* context,
                                                      const pb::PackageRequest* request) override {
    return package_.Serve<pb::PackageEvent>(context, request);
  }
  grpc::ServerUnaryReactor* ListTargets(grpc::CallbackServerContext* context,
                                        const pb::ListTargetsRequest* request,
                                        pb::ListTargetsResponse* response) override {
    return rpc::UnaryOnPool(list_targets_, context, request, response, ListTargetsCall);
  }

  steps::StepMethod compile_, package_;
  rpc::Method list_targets_;
};

}  // namespace

const steps::ServiceDefinition& CodegenDefinition() {
  static const steps::ServiceDefinition* const definition = new steps::ServiceDefinition{
      metrics::Service::kCodegen,
      "codegen",
      pb::Codegen::service_full_name(),
      7454,
      {MakesLibraries(steps::MakeStep("quench.codegen.v1.Codegen/Compile", metrics::Stage::kCompile,
                                      CachingOf, CompileStep),
                      {"library"}),
       MakesLibraries(TakesLibraries(steps::MakeStep("quench.codegen.v1.Codegen/Package",
                                                     metrics::Stage::kPackage,
                                                     steps::Caching::kNever, PackageStep),
                                     {"library"}),
                      {"library"})},
      [](const steps::ServiceParts& parts, const std::vector<steps::Step>& list) {
        return std::make_unique<CodegenService>(parts, list);
      }};
  return *definition;
}

}  // namespace quench::codegen
