// JSON from outside, read strictly: one value, no byte order mark, no NUL bytes, no name twice in
// one object, nothing nested deeper than kMaxJsonDepth (so that no later walk can exhaust the
// stack).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace blockscale {

inline constexpr int kMaxJsonDepth = 100;

// The whole document, names in their order. `file` names it in errors.
Result<nlohmann::ordered_json> ParseJsonStrictly(std::string_view text, const std::string& file);

// Event by event, for documents too large for a tree. The handler's callbacks return false to stop,
// with their reason in `failure`.
Status ParseJsonEvents(std::string_view text, const std::string& file,
                       nlohmann::json_sax<nlohmann::json>& handler, const Status& failure);

}  // namespace blockscale
