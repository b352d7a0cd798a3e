#include "common/steps/read_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include "common/base/files.h"
#include "common/base/status.h"

namespace quench::steps {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

class Mistakes final : public google::protobuf::io::ErrorCollector {
 public:
  explicit Mistakes(std::string file) : file_(std::move(file)) {}
  // Line and column count from 0.
  void AddError(int line, int column, const std::string& message) override {
    problems_.Add(InvalidArgument("{}:{}:{}: {}", file_, line + 1, column + 1, message));
  }
  absl::Status Finish() const { return problems_.Finish(); }

 private:
  std::string file_;
  StatusCollector problems_;
};

}  // namespace

absl::Status ReadConfig(const std::filesystem::path& path, google::protobuf::Message* config) {
  QUENCH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  if (path.extension() == ".json") {
    const auto status = google::protobuf::util::JsonStringToMessage(text, config);
    if (status.ok()) return absl::OkStatus();
    return InvalidArgument("{}: {}", path.string(),
                           std::string(status.message().data(), status.message().size()));
  }
  if (path.extension() != ".txtpb") {
    return InvalidArgument("{}: configuration is read from .txtpb (protobuf text) or .json files",
                           path.string());
  }
  google::protobuf::TextFormat::Parser parser;
  Mistakes mistakes(path.string());
  parser.RecordErrorsTo(&mistakes);
  if (parser.ParseFromString(text, config)) return absl::OkStatus();
  return mistakes.Finish();
}

}  // namespace quench::steps
