// What the converted config.json says of quantised tensors, whatever their schemes and spellings.
#pragma once

#include <vector>

#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "verify/recoded_pairs.h"

namespace blockscale {

// Every field but quantization_config is as in the source and in its order; quant_method belongs to
// the spelling of the tensors, and there is none when nothing is quantised. compressed-tensors:
// every scheme of the tensors has a config group and each group tensors, its format is that of its
// tensors, and what is not quantised is ignored. ModelOpt: quant_algo is that of the tensors.
void CheckRecodedConfig(const Checkpoint& source, const Checkpoint& converted,
                        const RecodedPairs& pairs, std::vector<VerifyFailure>* failures);

}  // namespace blockscale
