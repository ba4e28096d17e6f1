// What matrices lost, as one self-contained page: no script, no outside file, readable by anybody.
//
//   facts | what others would have cost | histogram of the error | layer-by-expert heat map | other
//   matrices by layer | worst 20
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "blockscale/verify.h"

namespace blockscale {

// A choice beside others: one bar.
struct ComparedChoice {
  std::string name;
  uint64_t bytes = 0;
  double relative_rmse = 0;
  bool chosen = false;
};

struct QualityPage {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;   // label, text
  const std::vector<MatrixQuality>* matrices = nullptr;     // not owned
  std::vector<std::pair<std::string, std::string>> alerts;  // what does not hold: object, message
  std::vector<ComparedChoice> comparison;                   // may be empty
  std::string comparison_note;
};

// Where a tensor stands: "model.layers.3.block_sparse_moe.experts.17.w1.weight" -> 3, 17, "w1".
struct TensorPlace {
  std::optional<int> layer;
  std::optional<int> expert;
  std::string part;  // the module's last name
};
TensorPlace PlaceOf(std::string_view tensor_name);

std::string RenderQualityPage(const QualityPage& page);

}  // namespace blockscale
