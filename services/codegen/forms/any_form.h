// The forms, of which a plan holds one by value.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "services/codegen/forms/bytes.h"
#include "services/codegen/forms/floats.h"
#include "services/codegen/forms/matrices.h"
#include "services/codegen/forms/pairs.h"
#include "services/codegen/forms/picked.h"
#include "services/codegen/forms/stored.h"

namespace quench::codegen {

// Each is a Form with QUENCH_FIELDS, and a `kName` in texts of plans.
using ListedForms = std::variant<FloatForm, StoredForm, PairForm, ByteForm, PickedForm, MatrixForm>;

class AnyForm {
 public:
  AnyForm() = default;
  template <typename Listed>
    requires std::is_base_of_v<Form, Listed>
  AnyForm(Listed form) : listed_(std::move(form)) {}

  const Form& operator*() const { return *operator->(); }
  const Form* operator->() const {
    return std::visit([](const Form& form) { return &form; }, listed_);
  }
  // Nothing where it is another form.
  template <typename Listed>
  const Listed* As() const {
    return std::get_if<Listed>(&listed_);
  }
  const ListedForms& listed() const { return listed_; }
  friend bool operator==(const AnyForm& a, const AnyForm& b) {
    return a.listed_.index() == b.listed_.index() &&
           std::visit([&]<typename Listed>(
                          const Listed& form) { return form.Fields() == b.As<Listed>()->Fields(); },
                      a.listed_);
  }

 private:
  ListedForms listed_;
};

}  // namespace quench::codegen
