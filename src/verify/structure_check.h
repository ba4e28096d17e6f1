// Everything about a converted checkpoint but the converted matrices: that what was kept is the
// same bit for bit, that nothing is missing or extra, and that config, index and side files are
// right.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/status.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"

namespace blockscale {

// config.json: the compressed-tensors envelope for INT8, an ignore list that covers every kept
// Linear, every other field as in the source and in its order.
void CheckConfig(const Checkpoint& source, const Checkpoint& converted,
                 std::vector<VerifyFailure>* failures);

// Every field of config.json but quantization_config, and their order.
void CheckOtherFields(const Checkpoint& source, const Checkpoint& converted,
                      std::vector<VerifyFailure>* failures);

// Linear modules (*.weight with two dimensions, no norm, no embedding) that are not quantised must
// be in the ignore list; quantised ones must not.
void CheckIgnoreList(const Checkpoint& converted, const nlohmann::ordered_json& ignore,
                     const std::function<bool(const TensorInfo&)>& is_quantised,
                     std::vector<VerifyFailure>* failures);

// Two tensors that must be the same: type, shape, and every bit.
Status CompareTensor(const Checkpoint& source, const TensorRef& from, const Checkpoint& converted,
                     const TensorRef& to, std::vector<VerifyFailure>* failures);

// Index and shards name the same tensors, every shard is there and whole, total_size is the size of
// the tensors, every shard says format "pt", and no shard lies in the folder that the index does
// not name. `converted` may have been opened tolerantly. An error is one of reading.
Status CheckIndex(const Checkpoint& converted, std::vector<VerifyFailure>* failures);

// Every file of the source that is neither weights, index nor config, byte by byte; but for
// ModelOpt's hf_quant_config.json, which is a config too. Code, weights and partial files at the
// top of the converted folder that the source does not have are failures.
Status CheckSideFiles(const Checkpoint& source, const Checkpoint& converted,
                      std::vector<VerifyFailure>* failures);

// The tensors that must come through unchanged: all but FP8 matrices and their scales. Missing and
// extra ones become failures; the rest is compared. `compared` counts them.
Status CheckKeptTensors(const Checkpoint& source, const Checkpoint& converted,
                        std::vector<VerifyFailure>* failures, uint64_t* compared);

}  // namespace blockscale
