// How a dialect spells a matrix: the tensors that stand for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/dialect.h"
#include "checkpoint/safetensors.h"
#include "numeric/quant_spec.h"

namespace blockscale {

struct SpeltTensor {
  enum class Role { kCodes, kScales, kGlobal, kShape };
  Role role = Role::kCodes;
  TensorInfo info;  // name, type and shape; no place yet
};

// Whether the dialect has words for a matrix of this kind. gpt-oss: experts only, stacked.
bool CanSpell(Dialect dialect, const QuantSpec& spec);

// The tensors of one matrix. Not for gpt-oss, whose tensors hold many (SpellStacked).
std::vector<SpeltTensor> Spell(Dialect dialect, const std::string& module, const QuantSpec& spec,
                               uint64_t rows, uint64_t columns);

// gpt-oss: codes and scales of one projection of all experts.
std::vector<SpeltTensor> SpellStacked(const std::string& stem, uint64_t experts, uint64_t rows,
                                      uint64_t columns);

// Which way the dialect's global scale works.
GlobalScale::Kind GlobalKindOf(Dialect dialect);

// What compressed-tensors calls the format of a scheme: "mxfp4-pack-quantized".
std::string CompressedTensorsFormat(Scheme scheme);

}  // namespace blockscale
