// The classes with the largest values in a classifier's output.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/ir/tensor.h"

namespace quench::cli {

// Whether the output is one of a classifier with these names: it has rank 1 or 2, numbers, and as many columns as there are names.
// Without names: whether it has rank 2 and 2 to 100,000 columns.
bool HasClasses(const Tensor& output, const std::vector<std::string>& names);

// For each row the five largest values, the largest first: [{"class": 281, "name": "tabby", "value": 0.61}], without `name` where
// there are no names. NaN is smaller than every number.
nlohmann::json BestClasses(const Tensor& output, const std::vector<std::string>& names);

// Prints such a list for people on stdout, at most eight rows of it.
void PrintBestClasses(const std::string& output, const nlohmann::json& best);

}  // namespace quench::cli
