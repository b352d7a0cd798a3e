// Names that a misspelt one may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quench {

// Levenshtein distance over lower-case letters.
int EditDistance(std::string_view a, std::string_view b);

// The `count` names of `known` that are nearest to `name`, nearest first, alike ones by alphabet.
std::vector<std::string> NearNames(std::string_view name, const std::vector<std::string>& known,
                                   int count = 3);

// "; did you mean `a` or `b`?", of known names that differ from `name` in a third of its letters at most, or begin with it; ""
// where there is none.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& known);

}  // namespace quench
