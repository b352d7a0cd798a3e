#include "common/rpc/remote_blobs.h"

#include <grpcpp/channel.h>
#include <openssl/rand.h>

#include <atomic>
#include <limits>

#include "build/bazel/remote/execution/v2/remote_execution.grpc.pb.h"
#include "common/base/beside.h"
#include "common/base/status.h"
#include "common/blobs/digest.h"
#include "common/rpc/errors.h"
#include "common/rpc/parallel.h"
#include "common/rpc/resource_name.h"
#include "common/rpc/retry.h"
#include "common/rpc/unary_call.h"
#include "google/bytestream/bytestream.grpc.pb.h"

namespace quench::rpc {

namespace reapi = ::build::bazel::remote::execution::v2;
namespace bytestream = ::google::bytestream;

struct RemoteBlobs::Stubs {
  explicit Stubs(const Channel& channel)
      : bytes(bytestream::ByteStream::NewStub(channel.grpc())),
        cas(reapi::ContentAddressableStorage::NewStub(channel.grpc())),
        capabilities(reapi::Capabilities::NewStub(channel.grpc())) {}
  std::unique_ptr<bytestream::ByteStream::Stub> bytes;
  std::unique_ptr<reapi::ContentAddressableStorage::Stub> cas;
  std::unique_ptr<reapi::Capabilities::Stub> capabilities;
};

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// Below, blobs share batches; each costs the server a flush, so that more bytes gain little.
constexpr uint64_t kSmallBytes = uint64_t{256} << 10;
// Limit of servers that state none: gRPC's own limit of messages, minus room for what is not data.
constexpr uint64_t kUsualBatchBytes = (uint64_t{4} << 20) - (uint64_t{64} << 10);
// A larger upload may have been begun by an earlier run, which is worth a question.
constexpr uint64_t kResumedBytes = uint64_t{8} << 20;
constexpr size_t kBatchBlobs = 1000;
constexpr auto kStandstill = std::chrono::milliseconds(500);
constexpr size_t kFindBlobs = 10'000;  // 80 bytes each

std::string NewUuid() {
  std::array<unsigned char, 16> bytes{};
  RAND_bytes(bytes.data(), bytes.size());
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0F) | 0x40);  // RFC 4122: version 4
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3F) | 0x80);  // and its variant
  const std::string hex = fmt::format("{:02x}", fmt::join(bytes, ""));
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

// The same id for the same bytes: the next run of a program that was ended goes on where it was.
std::string UploadIdOf(const std::string& instance, const BlobId& id) {
  std::string hex = Sha256Hex(fmt::format("quench upload {} {} {}", instance, id.hash, id.size));
  hex[12] = '8';  // RFC 9562: a version of our own making, and its variant
  hex[16] = 'a';
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20, 12));
}

void SetDigest(const BlobId& id, reapi::Digest* digest) {
  digest->set_hash(id.hash);
  digest->set_size_bytes(static_cast<int64_t>(id.size));
}

BlobId IdOf(const reapi::Digest& digest) {
  return {digest.hash(), static_cast<uint64_t>(digest.size_bytes())};
}

absl::Status StatusOf(const google::rpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.code()), status.message()};
}

std::vector<BlobId> WithoutRepetitions(std::vector<BlobId> blobs) {
  std::sort(blobs.begin(), blobs.end());
  blobs.erase(std::unique(blobs.begin(), blobs.end()), blobs.end());
  return blobs;
}

// Keeps a blob in memory.
class StringWriter final : public BlobWriter {
 public:
  absl::Status Append(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return absl::OkStatus();
  }
  uint64_t size() const override { return text.size(); }
  absl::StatusOr<std::string> Commit() override { return Sha256Hex(text); }
  absl::Status CommitAs(const BlobId& id) override {
    const std::string digest = Sha256Hex(text);
    if (digest == id.hash && text.size() == id.size) return absl::OkStatus();
    return WrongBlob(digest, text.size(), id);
  }
  std::string text;
};

std::span<const std::byte> AsBytes(const std::string& data) {
  return std::as_bytes(std::span(data.data(), data.size()));
}

absl::Status Store(const std::string& data, const BlobId& id, BlobWriter& writer) {
  if (data.size() <= id.size - writer.size()) return writer.Append(AsBytes(data));
  return absl::DataLossError(
      fmt::format("the server sent more than the {} bytes of blob `{}`", id.size, id.hash));
}

// Groups of small blobs, and each large one by itself.
std::vector<std::vector<BlobId>> Groups(const std::vector<BlobId>& blobs, uint64_t batch_limit) {
  std::vector<std::vector<BlobId>> groups;
  std::vector<BlobId> batch;
  uint64_t bytes = 0;
  for (const BlobId& id : blobs) {
    if (id.size > std::min(kSmallBytes, batch_limit)) {
      groups.push_back({id});
      continue;
    }
    if (bytes + id.size > batch_limit || batch.size() == kBatchBlobs) {
      groups.push_back(std::exchange(batch, {}));
      bytes = 0;
    }
    batch.push_back(id);
    bytes += id.size;
  }
  if (!batch.empty()) groups.push_back(std::move(batch));
  return groups;
}

}  // namespace

absl::Status BlobsMissing(const std::vector<BlobId>& blobs) {
  std::string text = fmt::format("{} blobs are missing:", blobs.size());
  if (blobs.size() == 1) text = "a blob is missing:";
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < std::min(blobs.size(), kNamed); ++i) {
    text += fmt::format(" `{}/{}`", blobs[i].hash, blobs[i].size);
  }
  if (blobs.size() > kNamed) text += " ...";
  absl::Status status = Error(Reason::kBlobMissing, text);
  for (const BlobId& id : blobs) {
    status = WithPrecondition(std::move(status),
                              {"MISSING", fmt::format("blobs/{}/{}", id.hash, id.size), ""});
  }
  return status;
}

// One Upload or Download: what its tasks share.
class RemoteBlobs::Transfer {
 public:
  Transfer(RemoteBlobs& remote, BlobSource& from, uint64_t total)
      : remote_(remote), from_(&from), stage_("upload"), total_(total) {}
  Transfer(RemoteBlobs& remote, uint64_t total)
      : remote_(remote), stage_("download"), total_(total) {}

  absl::Status UploadOne(const BlobId& id, const StepContext& step);
  absl::Status UploadBatch(const std::vector<BlobId>& ids, const StepContext& step);
  absl::Status DownloadOne(const BlobId& id, BlobWriter& writer, const StepContext& step);
  absl::Status DownloadBatch(const std::vector<BlobId>& ids, LocalBlobStore& into,
                             const StepContext& step);

  // The blobs that the server said it does not have, if any.
  absl::Status Missing() const {
    return missing_.empty() ? absl::OkStatus() : BlobsMissing(WithoutRepetitions(missing_));
  }

 private:
  // One try; `*position` follows what is sent or received.
  absl::Status Send(const BlobReader& reader, const ResourceName& name, uint64_t* position,
                    const StepContext& step);
  absl::Status Fetch(const BlobId& id, BlobWriter& writer, const StepContext& step);
  // How much of an upload arrived; a new name if the server does not know. Whether it is complete.
  absl::StatusOr<bool> AskPosition(ResourceName* name, uint64_t* position, const StepContext& step);
  // As AskPosition, when what somebody else sends of the same blob has come to an end.
  absl::StatusOr<bool> AwaitOther(ResourceName* name, uint64_t* position, const StepContext& step);

  void Moved(int64_t bytes, const StepContext& step);
  void AddMissing(const BlobId& id);

  RemoteBlobs& remote_;
  BlobSource* const from_ = nullptr;  // of uploads
  const std::string stage_;
  const uint64_t total_;
  std::mutex mutex_;
  int64_t done_ = 0;
  std::vector<BlobId> missing_;
};

void RemoteBlobs::Transfer::Moved(int64_t bytes, const StepContext& step) {
  const std::lock_guard lock(mutex_);  // reports come one after the other, and never go back
  done_ += bytes;
  if (bytes > 0) step.Report({stage_, "", done_, static_cast<int64_t>(total_)});
}

void RemoteBlobs::Transfer::AddMissing(const BlobId& id) {
  const std::lock_guard lock(mutex_);
  missing_.push_back(id);
}

absl::Status RemoteBlobs::Transfer::Send(const BlobReader& reader, const ResourceName& name,
                                         uint64_t* position, const StepContext& step) {
  ClientCall call(*remote_.channel_, step);
  bytestream::WriteResponse response;
  const auto writer = remote_.stubs_->bytes->Write(call.context(), &response);
  bytestream::WriteRequest request;
  request.set_resource_name(FormatResourceName(name));
  absl::Status local;
  for (bool more = true; more;) {
    const auto count = std::min<uint64_t>(kChunkBytes, reader.size() - *position);
    std::string* const data = request.mutable_data();
    data->resize(static_cast<size_t>(count));
    local = reader.ReadAt(*position, std::as_writable_bytes(std::span(data->data(), data->size())));
    if (!local.ok()) {
      call.context()->TryCancel();
      break;
    }
    request.set_write_offset(static_cast<int64_t>(*position));
    more = *position + count < reader.size();
    request.set_finish_write(!more);
    if (!writer->Write(request)) break;  // the server has enough, or the connection is gone
    *position += count;
    Moved(static_cast<int64_t>(count), step);
    request.clear_resource_name();
  }
  writer->WritesDone();
  const absl::Status status = FromGrpc(writer->Finish());
  QUENCH_RETURN_IF_ERROR(local);
  QUENCH_RETURN_IF_ERROR(status);
  if (response.committed_size() == static_cast<int64_t>(reader.size())) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("the server took {} of the {} bytes of blob `{}`",
                                            response.committed_size(), reader.size(),
                                            name.blob.hash));
}

absl::StatusOr<bool> RemoteBlobs::Transfer::AskPosition(ResourceName* name, uint64_t* position,
                                                        const StepContext& step) {
  bytestream::QueryWriteStatusRequest request;
  request.set_resource_name(FormatResourceName(*name));
  bytestream::QueryWriteStatusResponse response;
  const absl::Status status = CallWithRetry(
      *remote_.channel_, step, remote_.options_.retry_time, [&](grpc::ClientContext* context) {
        return remote_.stubs_->bytes->QueryWriteStatus(context, request, &response);
      });
  if (status.code() == absl::StatusCode::kUnimplemented || absl::IsNotFound(status)) {
    name->upload_id = NewUuid();
    *position = 0;
    return false;
  }
  QUENCH_RETURN_IF_ERROR(status);
  const auto committed = static_cast<uint64_t>(std::max<int64_t>(response.committed_size(), 0));
  *position = response.complete() ? name->blob.size : std::min(committed, name->blob.size);
  return response.complete();
}

absl::StatusOr<bool> RemoteBlobs::Transfer::AwaitOther(ResourceName* name, uint64_t* position,
                                                       const StepContext& step) {
  const absl::Status pause =
      WithRetryAfter(absl::UnavailableError("somebody else uploads the blob"), kStandstill);
  Backoff backoff(step, remote_.options_.retry_time);
  QUENCH_ASSIGN_OR_RETURN(bool complete, AskPosition(name, position, step));
  while (!complete && backoff.Wait(pause)) {
    const uint64_t before = *position;
    QUENCH_ASSIGN_OR_RETURN(complete, AskPosition(name, position, step));
    if (*position <= before) break;
    backoff.Progressed();
  }
  QUENCH_RETURN_IF_ERROR(step.Check());
  return complete;
}

absl::Status RemoteBlobs::Transfer::UploadOne(const BlobId& id, const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobReader> reader, from_->OpenReader(id));
  ResourceName name{remote_.options_.instance, UploadIdOf(remote_.options_.instance, id), id};
  Backoff backoff(step, remote_.options_.retry_time);
  uint64_t position = 0, furthest = 0;
  bool resumed = false, complete = false;
  if (id.size >= kResumedBytes) {
    QUENCH_ASSIGN_OR_RETURN(complete, AskPosition(&name, &position, step));
    resumed = true;
    Moved(static_cast<int64_t>(position), step);
  }
  while (!complete) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    const uint64_t begin = position;
    absl::Status status = Send(*reader, name, &position, step);
    if (status.ok()) {
      Moved(static_cast<int64_t>(id.size - position), step);  // what the server had already
      return status;
    }
    QUENCH_RETURN_IF_ERROR(step.Check());
    const int64_t counted = static_cast<int64_t>(position);
    if (resumed && begin > 0 && status.code() == absl::StatusCode::kInvalidArgument) {
      // The server kept other bytes than were sent, after a crash perhaps: once more from the
      // start.
      name.upload_id = NewUuid();
      position = 0;
      resumed = false;
    } else {
      const bool lost_place = absl::IsAborted(status) || absl::IsOutOfRange(status);
      if (!IsTransient(status) && !lost_place) return status;
      if (!backoff.Wait(status)) {
        QUENCH_RETURN_IF_ERROR(step.Check());
        return status;
      }
      QUENCH_ASSIGN_OR_RETURN(complete, absl::IsAborted(status)
                                            ? AwaitOther(&name, &position, step)
                                            : AskPosition(&name, &position, step));
      resumed = true;
    }
    Moved(static_cast<int64_t>(position) - counted, step);
    if (position > furthest) backoff.Progressed();
    furthest = std::max(furthest, position);
  }
  return absl::OkStatus();
}

absl::Status RemoteBlobs::Transfer::UploadBatch(const std::vector<BlobId>& ids,
                                                const StepContext& step) {
  reapi::BatchUpdateBlobsRequest request;
  request.set_instance_name(remote_.options_.instance);
  request.set_digest_function(reapi::DigestFunction::SHA256);
  uint64_t bytes = 0;
  for (const BlobId& id : ids) {
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobReader> reader, from_->OpenReader(id));
    reapi::BatchUpdateBlobsRequest::Request* const each = request.add_requests();
    SetDigest(id, each->mutable_digest());
    std::string* const data = each->mutable_data();
    data->resize(static_cast<size_t>(id.size));
    QUENCH_RETURN_IF_ERROR(
        reader->ReadAt(0, std::as_writable_bytes(std::span(data->data(), data->size()))));
    bytes += id.size;
  }
  reapi::BatchUpdateBlobsResponse response;
  QUENCH_RETURN_IF_ERROR(CallWithRetry(
      *remote_.channel_, step, remote_.options_.retry_time, [&](grpc::ClientContext* context) {
        return remote_.stubs_->cas->BatchUpdateBlobs(context, request, &response);
      }));
  for (const auto& each : response.responses()) {
    QUENCH_RETURN_IF_ERROR(Annotate(StatusOf(each.status()),
                                    fmt::format("upload of blob `{}`", each.digest().hash())));
  }
  if (response.responses_size() != request.requests_size()) {
    return Internal("the server answered {} of {} blobs of a batch", response.responses_size(),
                    request.requests_size());
  }
  Moved(static_cast<int64_t>(bytes), step);
  return absl::OkStatus();
}

absl::Status RemoteBlobs::Transfer::Fetch(const BlobId& id, BlobWriter& writer,
                                          const StepContext& step) {
  ClientCall call(*remote_.channel_, step);
  bytestream::ReadRequest request;
  request.set_resource_name(FormatResourceName({remote_.options_.instance, "", id}));
  request.set_read_offset(static_cast<int64_t>(writer.size()));
  const auto reader = remote_.stubs_->bytes->Read(call.context(), request);
  absl::Status local;
  // One chunk is stored while the next one comes.
  bytestream::ReadResponse chunk, next;
  bool more = reader->Read(&chunk);
  while (more) {
    RunBeside(
        [&] {
          local = Store(chunk.data(), id, writer);
          if (!local.ok()) call.context()->TryCancel();  // whoever waits for the next one
        },
        [&] { more = reader->Read(&next); });
    if (!local.ok()) break;
    Moved(static_cast<int64_t>(chunk.data().size()), step);
    chunk.Swap(&next);
  }
  const absl::Status status = FromGrpc(reader->Finish());
  QUENCH_RETURN_IF_ERROR(local);
  QUENCH_RETURN_IF_ERROR(status);
  if (writer.size() == id.size) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("the server sent {} of the {} bytes of blob `{}`",
                                            writer.size(), id.size, id.hash));
}

absl::Status RemoteBlobs::Transfer::DownloadOne(const BlobId& id, BlobWriter& writer,
                                                const StepContext& step) {
  Backoff backoff(step, remote_.options_.retry_time);
  while (true) {
    QUENCH_RETURN_IF_ERROR(step.Check());
    const uint64_t before = writer.size();
    absl::Status status = Fetch(id, writer, step);
    if (status.ok()) break;
    QUENCH_RETURN_IF_ERROR(step.Check());
    if (absl::IsNotFound(status)) {
      AddMissing(id);
      return absl::OkStatus();
    }
    if (writer.size() > before) backoff.Progressed();
    if (!IsTransient(status)) return status;
    if (!backoff.Wait(status)) {
      QUENCH_RETURN_IF_ERROR(step.Check());
      return status;
    }
  }
  absl::Status committed = writer.CommitAs(id);
  if (committed.code() != absl::StatusCode::kInvalidArgument) return committed;
  return absl::DataLossError("the server sent wrong bytes: " + MessageOf(committed));
}

absl::Status RemoteBlobs::Transfer::DownloadBatch(const std::vector<BlobId>& ids,
                                                  LocalBlobStore& into, const StepContext& step) {
  reapi::BatchReadBlobsRequest request;
  request.set_instance_name(remote_.options_.instance);
  request.set_digest_function(reapi::DigestFunction::SHA256);
  for (const BlobId& id : ids) SetDigest(id, request.add_digests());
  reapi::BatchReadBlobsResponse response;
  QUENCH_RETURN_IF_ERROR(CallWithRetry(
      *remote_.channel_, step, remote_.options_.retry_time, [&](grpc::ClientContext* context) {
        return remote_.stubs_->cas->BatchReadBlobs(context, request, &response);
      }));
  std::set<BlobId> expected(ids.begin(), ids.end());
  for (const auto& each : response.responses()) {
    const BlobId id = IdOf(each.digest());
    if (expected.erase(id) == 0) continue;
    const absl::Status status = StatusOf(each.status());
    if (absl::IsNotFound(status)) {
      AddMissing(id);
      continue;
    }
    QUENCH_RETURN_IF_ERROR(Annotate(status, fmt::format("download of blob `{}`", id.hash)));
    QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, into.Create());
    QUENCH_RETURN_IF_ERROR(writer->Append(AsBytes(each.data())));
    const absl::Status committed = writer->CommitAs(id);
    if (committed.code() == absl::StatusCode::kInvalidArgument) {
      return absl::DataLossError("the server sent wrong bytes: " + MessageOf(committed));
    }
    QUENCH_RETURN_IF_ERROR(committed);
    Moved(static_cast<int64_t>(id.size), step);
  }
  if (expected.empty()) return absl::OkStatus();
  return Internal("the server left {} of {} blobs out of a batch", expected.size(), ids.size());
}

RemoteBlobs::RemoteBlobs(std::shared_ptr<Channel> channel, const RemoteBlobsOptions& options)
    : channel_(std::move(channel)), options_(options), stubs_(new Stubs(*channel_)) {}

RemoteBlobs::~RemoteBlobs() = default;

absl::Status RemoteBlobs::Reach(const StepContext& step, std::chrono::milliseconds patience) {
  return BatchLimit(step, patience).status();
}

absl::StatusOr<uint64_t> RemoteBlobs::BatchLimit(const StepContext& step,
                                                 std::chrono::milliseconds retry_time) {
  {
    const std::lock_guard lock(mutex_);
    if (batch_limit_) return *batch_limit_;
  }
  reapi::GetCapabilitiesRequest request;
  request.set_instance_name(options_.instance);
  reapi::ServerCapabilities response;
  absl::Status status =
      CallWithRetry(*channel_, step, retry_time, [&](grpc::ClientContext* context) {
        return stubs_->capabilities->GetCapabilities(context, request, &response);
      });
  uint64_t limit = kUsualBatchBytes;
  if (status.ok()) {
    const int64_t theirs = response.cache_capabilities().max_batch_total_size_bytes();
    if (theirs > 0) limit = std::min(limit, static_cast<uint64_t>(theirs));
  } else if (status.code() != absl::StatusCode::kUnimplemented) {
    return status;
  }
  const std::lock_guard lock(mutex_);
  batch_limit_ = limit;
  return limit;
}

absl::StatusOr<std::vector<BlobId>> RemoteBlobs::FindMissing(const std::vector<BlobId>& blobs,
                                                             const StepContext& step) {
  std::vector<BlobId> missing;
  for (size_t begin = 0; begin < blobs.size(); begin += kFindBlobs) {
    reapi::FindMissingBlobsRequest request;
    request.set_instance_name(options_.instance);
    request.set_digest_function(reapi::DigestFunction::SHA256);
    const size_t end = std::min(begin + kFindBlobs, blobs.size());
    for (size_t i = begin; i < end; ++i) SetDigest(blobs[i], request.add_blob_digests());
    reapi::FindMissingBlobsResponse response;
    QUENCH_RETURN_IF_ERROR(
        CallWithRetry(*channel_, step, options_.retry_time, [&](grpc::ClientContext* context) {
          return stubs_->cas->FindMissingBlobs(context, request, &response);
        }));
    for (const reapi::Digest& digest : response.missing_blob_digests()) {
      missing.push_back(IdOf(digest));
    }
  }
  return missing;
}

absl::Status RemoteBlobs::Upload(BlobSource& from, const std::vector<BlobId>& blobs,
                                 const StepContext& step) {
  QUENCH_ASSIGN_OR_RETURN(const std::vector<BlobId> missing,
                          FindMissing(WithoutRepetitions(blobs), step));
  if (missing.empty()) return absl::OkStatus();
  uint64_t batch_limit = 0;
  if (missing.size() > 1) {
    QUENCH_ASSIGN_OR_RETURN(batch_limit, BatchLimit(step, options_.retry_time));
  }
  uint64_t total = 0;
  for (const BlobId& id : missing) total += id.size;
  Transfer transfer(*this, from, total);
  std::vector<Task> tasks;
  for (const std::vector<BlobId>& group : Groups(missing, batch_limit)) {
    tasks.emplace_back([&transfer, group](const StepContext& part) {
      return group.size() == 1 ? transfer.UploadOne(group[0], part)
                               : transfer.UploadBatch(group, part);
    });
  }
  return RunTasks(tasks, options_.parallel, step);
}

absl::Status RemoteBlobs::Download(const std::vector<BlobId>& blobs, LocalBlobStore& into,
                                   const StepContext& step) {
  std::vector<BlobId> wanted;
  uint64_t total = 0;
  for (const BlobId& id : WithoutRepetitions(blobs)) {
    if (into.UseRight(id)) continue;
    wanted.push_back(id);
    total += id.size;
  }
  if (wanted.empty()) return absl::OkStatus();
  uint64_t batch_limit = 0;
  if (wanted.size() > 1) {
    QUENCH_ASSIGN_OR_RETURN(batch_limit, BatchLimit(step, options_.retry_time));
  }
  Transfer transfer(*this, total);
  std::vector<Task> tasks;
  for (const std::vector<BlobId>& group : Groups(wanted, batch_limit)) {
    tasks.emplace_back([&transfer, &into, group](const StepContext& part) -> absl::Status {
      if (group.size() > 1) return transfer.DownloadBatch(group, into, part);
      QUENCH_ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> writer, into.Create());
      return transfer.DownloadOne(group[0], *writer, part);
    });
  }
  QUENCH_RETURN_IF_ERROR(RunTasks(tasks, options_.parallel, step));
  return transfer.Missing();
}

absl::StatusOr<std::string> RemoteBlobs::Read(const BlobId& blob, const StepContext& step) {
  StringWriter writer;
  QUENCH_RETURN_IF_ERROR(Download(blob, writer, step));
  return std::move(writer.text);
}

absl::Status RemoteBlobs::Download(const BlobId& blob, BlobWriter& writer,
                                   const StepContext& step) {
  Transfer transfer(*this, blob.size);
  QUENCH_RETURN_IF_ERROR(transfer.DownloadOne(blob, writer, step));
  return transfer.Missing();
}

}  // namespace quench::rpc
