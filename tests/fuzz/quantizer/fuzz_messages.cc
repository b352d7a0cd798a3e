// Statistics, selections and roundings, which clients keep and send back: any bytes give one or an error, and
// what was accepted is written to what is read to the same.
#include "services/quantizer/rounding_file.h"
#include "services/quantizer/selection_file.h"
#include "services/quantizer/statistics_file.h"
#include "tests/fuzz/quantizer/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using quench::fuzz::File;
using quench::fuzz::Require;

File FileOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), ".stats"};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string statistics, selection, rounding;
  {
    const File file(data, size, ".stats");
    if (const auto read = quench::quantizer::ReadStatistics(file.path()); read.ok())
      statistics = quench::quantizer::StatisticsBytes(*read);
    if (const auto read = quench::quantizer::ReadSelection(file.path()); read.ok())
      selection = quench::quantizer::SelectionBytes(*read);
    if (const auto read = quench::quantizer::ReadRounding(file.path()); read.ok())
      rounding = quench::quantizer::RoundingBytes(*read);
  }
  if (!statistics.empty()) {
    const File file = FileOf(statistics);
    const auto again = quench::quantizer::ReadStatistics(file.path());
    Require(again.ok(), again.status().ToString());
    Require(quench::quantizer::StatisticsBytes(*again) == statistics, "statistics changed");
  }
  if (!selection.empty()) {
    const File file = FileOf(selection);
    const auto again = quench::quantizer::ReadSelection(file.path());
    Require(again.ok(), again.status().ToString());
    Require(quench::quantizer::SelectionBytes(*again) == selection, "the selection changed");
  }
  if (!rounding.empty()) {
    const File file = FileOf(rounding);
    const auto again = quench::quantizer::ReadRounding(file.path());
    Require(again.ok(), again.status().ToString());
    Require(quench::quantizer::RoundingBytes(*again) == rounding, "the rounding changed");
  }
  return 0;
}
