// The table of a fleet: a row a cell, as CSV, JSON or a page.
#pragma once

#include <absl/status/statusor.h>

#include <cstdio>
#include <memory>
#include <string>

#include "quench/gateway/v1/fleets.pb.h"

namespace quench::cli {

// The accuracy that a cell's options measured; absent: nothing was measured.
struct CellAccuracy {
  double sqnr_db = 0;
  bool has_drop = false;
  double drop = 0;
};

// Rows of CSV and JSON are written as they come. Until Finish, the file has another name.
class FleetTable {
 public:
  enum class Format { kCsv, kJson, kHtml };
  // By the ending of the file: .csv, .json or .html.
  static absl::StatusOr<Format> FormatOf(const std::string& path);
  static absl::StatusOr<std::unique_ptr<FleetTable>> Create(const std::string& path,
                                                            const gateway::v1::Fleet& fleet);
  // On stdout, as JSON.
  static std::unique_ptr<FleetTable> Print(const gateway::v1::Fleet& fleet);
  ~FleetTable();
  FleetTable(const FleetTable&) = delete;
  FleetTable& operator=(const FleetTable&) = delete;

  // `folder`: of its library; "" without one.
  void Add(const gateway::v1::FleetCell& cell, const CellAccuracy* accuracy,
           const std::string& folder);
  absl::Status Finish();

 private:
  FleetTable(std::string path, Format format, std::FILE* file)
      : path_(std::move(path)), format_(format), file_(file) {}
  void Begin(const gateway::v1::Fleet& fleet);
  void Write(const std::string& text);
  const std::string path_;  // "": stdout
  const Format format_;
  std::FILE* file_;
  std::string title_, body_;  // of a page
  int rows_ = 0;
};

// "succeeded".
std::string StateText(gateway::v1::State state);
// On stdout, as JSON.
absl::Status PrintMessage(const google::protobuf::Message& message);

}  // namespace quench::cli
