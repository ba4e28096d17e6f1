// A recipe applied: which scheme a matrix of a name, class and present scheme is to have.
#pragma once

#include <re2/re2.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "blockscale/recipe.h"
#include "checkpoint/dialect.h"
#include "checkpoint/stored_matrix.h"
#include "model/tensor_class.h"
#include "numeric/quant_spec.h"
#include "numeric/scale_rule.h"

namespace blockscale {

struct MatrixTarget {
  QuantSpec spec;
  ScaleRule rule = ScaleRule::kAbsmax;
  bool named = false;  // the rule names a class or a pattern, so that nothing is touched by chance
};

class RecipeBook {
 public:
  static Result<RecipeBook> Make(const Recipe& recipe);

  std::optional<Dialect> dialect() const { return dialect_; }
  // Nullopt: keep. `any_quantised`: whether the checkpoint has a quantised matrix at all.
  std::optional<MatrixTarget> Decide(const StoredMatrix& matrix, TensorClass of,
                                     bool any_quantised) const;

 private:
  struct Rule {
    std::optional<TensorClass> of;
    std::shared_ptr<const re2::RE2> match;  // null: any
    std::optional<MatrixTarget> target;     // nullopt: keep
    bool default_rule = false;
  };
  static Result<Rule> MakeRule(const RecipeRule& rule);

  std::vector<Rule> rules_;
  std::optional<Dialect> dialect_;
};

}  // namespace blockscale
