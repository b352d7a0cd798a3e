#include "services/cli/remote/fleet_table.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/errno_status.h"
#include "common/base/status.h"
#include "services/analyser/html.h"

namespace quench::cli {
namespace {

namespace pb = ::quench::gateway::v1;
using analyser::Escaped;

constexpr std::string_view kStyle =
#include "embedded/fleet.css.inc"
    ;
constexpr std::string_view kScript =
#include "embedded/fleet.js.inc"
    ;
constexpr char kPartSuffix[] = ".part";

// RFC 4180.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  QUENCH_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok());
  return json;
}

nlohmann::json RowOf(const pb::FleetCell& cell, const CellAccuracy* accuracy,
                     const std::string& folder) {
  nlohmann::json row = {{"model", cell.model()},
                        {"options", cell.options()},
                        {"target", cell.target()},
                        {"state", StateText(cell.state())},
                        {"seconds", cell.seconds()},
                        {"bytes", cell.library_bytes()},
                        {"cached", cell.cached()},
                        {"error", cell.error().message()},
                        {"workflow", cell.workflow()},
                        {"step", cell.step()},
                        {"folder", folder}};
  if (accuracy != nullptr) {
    row["sqnr_db"] = accuracy->sqnr_db;
    if (accuracy->has_drop) row["drop"] = accuracy->drop;
  }
  return row;
}

std::string Number(double value, const char* format) {
  return fmt::format(fmt::runtime(format), value);
}

std::string Bar(const pb::Counts& counts) {
  const int all = std::max(1, counts.queued() + counts.running() + counts.succeeded() +
                                  counts.failed() + counts.cancelled());
  std::string bar = R"(<div class="bar" role="img" aria-label="workflows by state">)";
  const std::pair<const char*, int> parts[] = {{"succeeded", counts.succeeded()},
                                               {"running", counts.running()},
                                               {"queued", counts.queued()},
                                               {"failed", counts.failed()},
                                               {"cancelled", counts.cancelled()}};
  for (const auto& [state, count] : parts) {
    if (count > 0)
      bar += fmt::format(R"(<span class="{0}" style="width:{1:.2f}%" title="{2} {0}"></span>)",
                         state, 100.0 * count / all, count);
  }
  return bar + "</div>";
}

std::string PageHead(const pb::Fleet& fleet) {
  const pb::Counts& steps = fleet.steps();
  return fmt::format(
      R"(<h1>Fleet {0}</h1><p>{1}: {2} steps done, {3} of them cached, {4} failed, {5} cancelled, {6} to go</p>{7}
<p><label>Filter <input id="filter" type="search" placeholder="model, target, state, error"></label> <span id="count"></span></p>
<table><thead><tr><th>model</th><th>options</th><th>target</th><th>state</th><th class="number">seconds</th>
<th class="number">bytes</th><th>cached</th><th class="number">drop %</th><th class="number">SQNR dB</th><th>error</th></tr></thead><tbody>
)",
      Escaped(fleet.id()), StateText(fleet.state()), steps.succeeded(), steps.cache_hits(),
      steps.failed(), steps.cancelled(), steps.queued() + steps.running(), Bar(fleet.workflows()));
}

}  // namespace

std::string StateText(pb::State state) {
  std::string text = pb::State_Name(state);
  text = text.substr(text.find('_') + 1);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

absl::Status PrintMessage(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    return Internal("a message cannot be written as JSON");
  }
  fmt::print("{}", json);
  return absl::OkStatus();
}

absl::StatusOr<FleetTable::Format> FleetTable::FormatOf(const std::string& path) {
  if (path.ends_with(".csv")) return Format::kCsv;
  if (path.ends_with(".json")) return Format::kJson;
  if (path.ends_with(".html")) return Format::kHtml;
  return InvalidArgument("--table `{}`: a table ends with .csv, .json or .html", path);
}

absl::StatusOr<std::unique_ptr<FleetTable>> FleetTable::Create(const std::string& path,
                                                               const pb::Fleet& fleet) {
  QUENCH_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  std::FILE* const file = std::fopen((path + kPartSuffix).c_str(), "w");
  if (file == nullptr) return ErrnoStatus(errno, "create", path);
  std::unique_ptr<FleetTable> table(new FleetTable(path, format, file));
  table->title_ = "Fleet " + fleet.id();
  table->Begin(fleet);
  return table;
}

std::unique_ptr<FleetTable> FleetTable::Print(const pb::Fleet& fleet) {
  std::unique_ptr<FleetTable> table(new FleetTable("", Format::kJson, stdout));
  table->Begin(fleet);
  return table;
}

FleetTable::~FleetTable() {
  if (file_ == nullptr || path_.empty()) return;
  std::fclose(file_);
  ::unlink((path_ + kPartSuffix).c_str());
}

void FleetTable::Write(const std::string& text) {
  if (format_ == Format::kHtml) {
    body_ += text;
  } else {
    std::fputs(text.c_str(), file_);
  }
}

void FleetTable::Begin(const pb::Fleet& fleet) {
  if (format_ == Format::kCsv) {
    Write(
        "model,options,target,state,seconds,bytes,cached,drop,sqnr_db,error,workflow,step,folder"
        "\r\n");
  } else if (format_ == Format::kJson) {
    Write("{\"fleet\": " + JsonOf(fleet) + ",\n\"cells\": [");
  } else {
    Write(PageHead(fleet));
  }
}

void FleetTable::Add(const pb::FleetCell& cell, const CellAccuracy* accuracy,
                     const std::string& folder) {
  const std::string drop =
      accuracy != nullptr && accuracy->has_drop ? Number(accuracy->drop, "{:.6g}") : "";
  const std::string sqnr = accuracy != nullptr ? Number(accuracy->sqnr_db, "{:.2f}") : "";
  if (format_ == Format::kJson) {
    Write((rows_ == 0 ? "\n  " : ",\n  ") +
          RowOf(cell, accuracy, folder)
              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (format_ == Format::kCsv) {
    Write(fmt::format("{},{},{},{},{:.3f},{},{},{},{},{},{},{},{}\r\n", CsvField(cell.model()),
                      CsvField(cell.options()), CsvField(cell.target()), StateText(cell.state()),
                      cell.seconds(), cell.library_bytes(), cell.cached() ? "yes" : "no", drop,
                      sqnr, CsvField(cell.error().message()), cell.workflow(),
                      CsvField(cell.step()), CsvField(folder)));
  } else {
    const std::string percent =
        accuracy != nullptr && accuracy->has_drop ? Number(100 * accuracy->drop, "{:.3f}") : "";
    Write(fmt::format(
        R"(<tr class="{}"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class="number">{:.2f}</td>)"
        R"(<td class="number">{}</td><td>{}</td><td class="number">{}</td><td class="number">{}</td><td>{}</td></tr>)"
        "\n",
        StateText(cell.state()), Escaped(cell.model()), Escaped(cell.options()),
        Escaped(cell.target()), StateText(cell.state()), cell.seconds(), cell.library_bytes(),
        cell.cached() ? "yes" : "", percent, sqnr, Escaped(cell.error().message())));
  }
  ++rows_;
}

absl::Status FleetTable::Finish() {
  if (format_ == Format::kJson) Write(rows_ == 0 ? "]}\n" : "\n]}\n");
  if (format_ == Format::kHtml) {
    body_ += "</tbody></table>\n";
    const std::string page =
        analyser::ToHtml({title_, std::string(kStyle), std::string(kScript), std::move(body_)});
    std::fputs(page.c_str(), file_);
  }
  if (path_.empty()) return absl::OkStatus();
  const bool written = std::fflush(file_) == 0 && std::ferror(file_) == 0;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!written || !closed) return ErrnoStatus(errno, "write", path_);
  std::error_code error;
  std::filesystem::rename(path_ + kPartSuffix, path_, error);
  if (error) return ErrnoStatus(error.value(), "replace", path_);
  return absl::OkStatus();
}

}  // namespace quench::cli
