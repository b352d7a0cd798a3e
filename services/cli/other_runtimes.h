// Types and forms that other runtimes want of a quantized ONNX file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "services/cli/quantization.h"

namespace quench::cli {

// The names of --for.
std::vector<std::string> OtherRuntimes();

// The problem with --for, or "": the output is not ONNX, or an option of those `given`, as
// Options::Given names them, says another type than the runtime wants.
std::string ProblemOfRuntime(const std::string& runtime, const std::filesystem::path& output,
                             const std::vector<std::string>& given, const QuantizeFlags& flags);

// Types of an ONNX file that were not given: those that `runtime` wants, or without one u8
// activations and i8 weights, which every runtime multiplies in integers. Others stay as they are.
void FillTypes(const std::string& runtime, const std::filesystem::path& output,
               const std::vector<std::string>& given, QuantizeFlags& flags);

}  // namespace quench::cli
