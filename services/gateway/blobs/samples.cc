#include "services/gateway/blobs/samples.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/ir/npy.h"
#include "common/rpc/chunks_on_pool.h"
#include "common/rpc/on_pool.h"
#include "common/steps/modules.h"

namespace quench::gateway {
namespace {

constexpr int kMaxTensors = 20'000;  // of a stream: the answer names each
constexpr int kMaxRank = 32;
constexpr size_t kMaxName = 251;            // with `.npy`, what file systems take
constexpr int64_t kMaxSamples = 1'000'000;  // six digits: files are in the order of their samples

class SampleReceiver final
    : public rpc::Receiver<v1::UploadSamplesRequest, v1::UploadSamplesResponse> {
 public:
  explicit SampleReceiver(const BlobServerParts& parts) : parts_(parts) {}

  absl::StatusOr<bool> Receive(const v1::UploadSamplesRequest& request,
                               const StepContext& step) override {
    if (request.has_tensor()) {
      QUENCH_RETURN_IF_ERROR(CheckComplete());
      QUENCH_RETURN_IF_ERROR(Begin(request.tensor(), step));
    } else if (path_.empty()) {
      return InvalidArgument("`tensor` is missing in the first message");
    }
    if (request.data().size() > missing_) {
      return InvalidArgument("{} has {} bytes, {} more than its type and dims say", path_,
                             bytes_ - missing_ + request.data().size(),
                             request.data().size() - missing_);
    }
    if (writer_ == nullptr) return false;
    QUENCH_RETURN_IF_ERROR(
        writer_->Append(std::as_bytes(std::span(request.data().data(), request.data().size()))));
    parts_.written.Increment(static_cast<double>(request.data().size()));
    missing_ -= request.data().size();
    if (missing_ == 0) QUENCH_RETURN_IF_ERROR(Store(step));
    return false;
  }

  absl::Status Finish(v1::UploadSamplesResponse* response, const StepContext& step) override {
    QUENCH_RETURN_IF_ERROR(CheckComplete());
    if (files_.samples().empty()) return InvalidArgument("the stream has no tensor");
    step::v1::SampleManifest manifest;
    *manifest.mutable_files() = files_.samples();
    QUENCH_ASSIGN_OR_RETURN(*files_.mutable_manifest(),
                            steps::StoreBytes(manifest.SerializeAsString(), *blobs_->store));
    const reapi::Digest& stored = files_.manifest();
    QUENCH_RETURN_IF_ERROR(blobs_->shared->Publish(
        {{stored.hash(), static_cast<uint64_t>(stored.size_bytes())}}, step));
    response->Swap(&files_);
    return absl::OkStatus();
  }
  std::string Resource() const override {
    return fmt::format("{} tensors of samples", files_.samples_size());
  }

 private:
  absl::Status CheckComplete() const {
    if (missing_ == 0) return absl::OkStatus();
    return InvalidArgument("{} ends after {} of {} bytes", path_, bytes_ - missing_, bytes_);
  }

  absl::Status Begin(const v1::SampleTensor& tensor, const StepContext& step) {
    QUENCH_ASSIGN_OR_RETURN(const std::string header, HeaderOf(tensor));
    path_ = fmt::format("{:06}/{}.npy", tensor.sample(), NpyStemOf(tensor.input()));
    const auto [known, fresh] = inputs_.emplace(path_, tensor.input());
    if (!fresh) {
      return InvalidArgument("sample {} has inputs `{}` and `{}`: both are {}", tensor.sample(),
                             known->second, tensor.input(), path_);
    }
    if (inputs_.size() > kMaxTensors)
      return InvalidArgument("more than {} tensors in a stream", kMaxTensors);
    if (blobs_ == nullptr) {
      QUENCH_ASSIGN_OR_RETURN(blobs_, BlobsOf(parts_, "", step));
    }
    QUENCH_ASSIGN_OR_RETURN(writer_, blobs_->store->Create());
    return writer_->Append(std::as_bytes(std::span(header)));
  }

  // All that is wrong with a tensor; sets `bytes_` and `missing_`.
  absl::StatusOr<std::string> HeaderOf(const v1::SampleTensor& tensor) {
    const auto wrong = [&](const std::string& text) {
      return InvalidArgument("input `{}` of sample {}: {}", tensor.input(), tensor.sample(), text);
    };
    const std::string& name = tensor.input();
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
    if (name.empty() || name.size() > kMaxName || std::any_of(name.begin(), name.end(), control))
      return wrong("names are 1 to 251 bytes without control characters");
    if (tensor.sample() < 0 || tensor.sample() >= kMaxSamples)
      return wrong(fmt::format("samples are numbered from 0 to {}", kMaxSamples - 1));
    if (tensor.dims_size() > kMaxRank)
      return wrong(fmt::format("rank {}, at most {} is taken", tensor.dims_size(), kMaxRank));
    // The numbers of quench.ir.v1.ElementType are those of DataType.
    const bool known = ir::v1::ElementType_IsValid(tensor.type());
    const std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
    const auto header = known ? NpyHeader(static_cast<DataType>(tensor.type()), dims)
                              : InvalidArgument("{} is not an element type", int{tensor.type()});
    if (!header.ok()) return wrong(MessageOf(header.status()));
    const std::optional<int64_t> count = ElementCount(dims);
    const int64_t width = DataTypeBits(static_cast<DataType>(tensor.type())) / 8;
    if (!count || *count > parts_.options.max_blob_bytes / width) {
      return wrong(fmt::format("dims are [{}]: negative, or more than {} bytes in all",
                               fmt::join(dims, ", "), parts_.options.max_blob_bytes));
    }
    bytes_ = missing_ = static_cast<uint64_t>(*count * width);
    return *header;
  }

  absl::Status Store(const StepContext& step) {
    v1::UploadSamplesResponse& files = files_;
    const uint64_t size = writer_->size();
    QUENCH_ASSIGN_OR_RETURN(const std::string hash, writer_->Commit());
    writer_.reset();
    QUENCH_RETURN_IF_ERROR(blobs_->shared->Publish({{hash, size}}, step));
    step::v1::File& file = *files.add_samples();
    file.set_path(path_);
    file.mutable_digest()->set_hash(hash);
    file.mutable_digest()->set_size_bytes(static_cast<int64_t>(size));
    return absl::OkStatus();
  }

  const BlobServerParts& parts_;
  std::shared_ptr<TenantBlobs> blobs_;
  std::map<std::string, std::string> inputs_;  // path -> the model's input
  std::string path_;                           // of the tensor that is being received
  uint64_t bytes_ = 0, missing_ = 0;           // of it
  std::unique_ptr<BlobWriter> writer_;         // null: it is stored
  v1::UploadSamplesResponse files_;
};

}  // namespace

SamplesService::SamplesService(BlobServerParts& parts)
    : parts_(parts),
      upload_(parts.pool, v1::Samples::service_full_name(), "UploadSamples",
              metrics::GrpcType::kClientStream, rpc::Effect::kChanges) {}

grpc::ServerReadReactor<v1::UploadSamplesRequest>* SamplesService::UploadSamples(
    grpc::CallbackServerContext* context, v1::UploadSamplesResponse* response) {
  return rpc::ReceiveOnPool<v1::UploadSamplesRequest>(
      upload_, context, response,
      [this](const rpc::AbortStream&) { return std::make_unique<SampleReceiver>(parts_); });
}

}  // namespace quench::gateway
