// Cases for an implementation that runs elsewhere: everything that it needs to compute their
// outputs, in files that any language reads. moe_candidate.h judges what it made of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file_system.h"
#include "verify/moe_case.h"

namespace blockscale {

// Makes the folder `output`, which must not be there:
//   cases.json             written last: {"cases": [{"case": its text, "call": file, "weights":
//                          file, "spec": the layer field by field, "first_expert": ...}]}
//   call-N.safetensors     input_codes U8 [tokens, bytes of a row], input_scales U8 likewise (when
//                          the scheme has them), input_global F32 [1] (nvfp4, a multiplier, of the
//                          intermediate too), hidden_states F32 [tokens, hidden] (what the codes
//                          stand for), topk_ids I32 and topk_weights F32 [tokens, top_k]
//   weights-N.safetensors  w13_codes, w13_scales, w2_codes, w2_scales U8 [local experts, rows,
//                          bytes of a row], w13_global, w2_global F32 [local experts] (multipliers;
//                          nvfp4), w13_bias, w2_bias F32; shared by cases of the same weights
// Codes are little endian, 4-bit ones low nibble first. Scales are bytes of the scheme's type:
// E8M0, E4M3, BF16 or FP32.
Status ExportCases(FileSystem& files, const std::string& output, const std::vector<MoeCase>& cases,
                   const std::function<void(size_t done)>& progress);

}  // namespace blockscale
