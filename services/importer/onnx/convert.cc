#include "services/importer/onnx/convert.h"

#include <map>

#include "services/importer/onnx/converters.h"

namespace quench::importer {
namespace {

constexpr OnnxOp kRows[] = {
#define QUENCH_ONNX_OP(domain, name, canonical, converter) \
  {domain, #name, canonical, &Convert##converter},
#define QUENCH_ONNX_OP_MISSING(domain, name) {domain, #name, #name, nullptr},
#include "services/importer/onnx/onnx_ops.def"
#undef QUENCH_ONNX_OP_MISSING
#undef QUENCH_ONNX_OP
};

struct Restriction {
  std::string_view domain, name, text;
};
constexpr Restriction kRestrictions[] = {
#define QUENCH_RESTRICTION(domain, name, text) {domain, #name, text},
#include "services/importer/onnx/restrictions.def"
#undef QUENCH_RESTRICTION
};

}  // namespace

std::span<const OnnxOp> AllOnnxOps() { return kRows; }

const OnnxOp* FindOnnxOp(std::string_view domain, std::string_view name) {
  static const auto* const kByName = [] {
    auto* rows = new std::map<std::pair<std::string_view, std::string_view>, const OnnxOp*>();
    for (const OnnxOp& row : kRows) rows->emplace(std::pair(row.domain, row.name), &row);
    return rows;
  }();
  const auto found = kByName->find({domain, name});
  return found == kByName->end() ? nullptr : found->second;
}

Conversion FindOnnxConversion(std::string_view domain, std::string_view name) {
  const OnnxOp* row = FindOnnxOp(domain, name);
  return row == nullptr || row->convert == nullptr ? Conversion() : Conversion(row->convert);
}

bool IsSupported(std::string_view domain, std::string_view name) {
  const OnnxOp* row = FindOnnxOp(domain, name);
  return row != nullptr && row->convert != nullptr;
}

std::vector<std::string_view> RestrictionsOf(std::string_view domain, std::string_view name) {
  std::vector<std::string_view> texts;
  for (const Restriction& row : kRestrictions) {
    if (row.domain == domain && row.name == name) texts.push_back(row.text);
  }
  return texts;
}

}  // namespace quench::importer
