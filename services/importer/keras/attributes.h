// A layer's configuration as attributes of its node.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/ir/graph.h"

namespace quench::importer {

// Numbers, texts and lists of them under their own keys, lists of lists one after another
// ("padding": [1, 1, 2, 2]), objects under "activation.class_name". Entries that are null, or that
// only training needs, are left out.
std::map<std::string, Attribute> AttributesOf(const nlohmann::json& config);

}  // namespace quench::importer
