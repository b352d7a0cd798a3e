// Filters and orders of ListWorkflows: a part of AIP-160 and AIP-132.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "quench/gateway/v1/workflows.pb.h"

namespace quench::gateway {

// One condition of a filter; all of them must hold.
struct Condition {
  enum class Field {
    kTitle,
    kLabel,
    kModel,
    kTarget,
    kFleet,
    kRequestId,
    kState,
    kPriority,
    kCreateTime,
    kEndTime
  };
  enum class Operator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kHas };
  Field field = Field::kTitle;
  std::string key;  // of kLabel
  Operator op = Operator::kEqual;
  std::string text;    // texts; `*` at either end stands for anything
  int64_t number = 0;  // states, priorities, and times in Unix microseconds
};

// The first mistake stands in `problem`, as a sentence's predicate ("has ..."), which is else empty.
std::vector<Condition> ParseFilter(const std::string& filter, std::string* problem);

// Whether the workflow, whose steps are not looked at, meets all conditions.
bool Matches(const std::vector<Condition>& conditions, const v1::Workflow& workflow);

struct ListOrder {
  bool by_end = false;  // else by creation; workflows that have not ended count as the newest
  bool ascending = false;
};
ListOrder ParseOrder(const std::string& order_by, std::string* problem);

}  // namespace quench::gateway
