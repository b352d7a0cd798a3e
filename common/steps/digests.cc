#include "common/steps/digests.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <set>

#include "build/bazel/remote/execution/v2/remote_execution.pb.h"
#include "common/blobs/digest.h"
#include "common/ir/wire/walk.h"
#include "common/rpc/errors.h"
#include "quench/step/v1/step.pb.h"

namespace quench::steps {
namespace {

using build::bazel::remote::execution::v2::Digest;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Leaves of modules what identifies them.
void Reduce(Message* message) {
  if (auto* module = dynamic_cast<step::v1::Module*>(message)) {
    Digest digest = module->digest();
    module->Clear();
    *module->mutable_digest() = std::move(digest);
    return;
  }
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->message_type() == step::v1::StepOptions::descriptor()) {
      reflection.ClearField(message, field);
    } else if (!field->is_repeated()) {
      Reduce(reflection.MutableMessage(message, field));
    } else {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        Reduce(reflection.MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

// The same bytes for equal messages of one build.
std::string Canonical(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string SaltOf(const Message& request) {
  std::string salt;
  wire::ForEachMessage<step::v1::StepOptions>(
      request,
      [&](const step::v1::StepOptions& options, const std::string&) { salt = options.salt(); });
  return salt;
}

}  // namespace

std::vector<BlobId> DigestsIn(const Message& message) {
  std::vector<BlobId> found;
  std::set<std::string> seen;
  wire::ForEachMessage<Digest>(message, [&](const Digest& digest, const std::string&) {
    if (digest.hash().empty() || !seen.insert(digest.hash()).second) return;
    found.push_back({digest.hash(), static_cast<uint64_t>(digest.size_bytes())});
  });
  return found;
}

absl::Status CheckDigests(const Message& message) {
  StatusCollector problems;
  std::vector<rpc::FieldViolation> violations;
  wire::ForEachMessage<Digest>(message, [&](const Digest& digest, const std::string& path) {
    std::string what;
    if (!IsDigest(digest.hash())) {
      what = fmt::format("`{}` is not a sha256: those have 64 lower-case hex characters",
                         digest.hash().substr(0, 80));
    } else if (digest.size_bytes() < 0) {
      what = fmt::format("the size is {}, must not be negative", digest.size_bytes());
    } else {
      return;
    }
    problems.Add(InvalidArgument("{}: {}", path, what));
    violations.push_back({path, what});
  });
  absl::Status status = problems.Finish();
  for (const rpc::FieldViolation& violation : violations) {
    status = rpc::WithField(std::move(status), violation);
  }
  return status;
}

std::string StepKey(const std::string& method, const Message& request, const std::string& tenant,
                    const std::string& build_id, const std::string& cpu) {
  const std::unique_ptr<Message> reduced(request.New());
  reduced->CopyFrom(request);
  Reduce(reduced.get());
  Sha256 sha;
  // Each part behind its length: no two lists of parts are the same bytes.
  for (const std::string& part : {std::string("quench step 1"), tenant, method, build_id, cpu,
                                  SaltOf(request), Canonical(*reduced)}) {
    sha.Update(fmt::format("{}:", part.size()));
    sha.Update(part);
  }
  return sha.HexDigest();
}

}  // namespace quench::steps
