#include "model/latent_attention.h"

#include <algorithm>

namespace blockscale {

uint64_t QueryRank(const ModelSize& size) {
  return std::max<uint64_t>(128, size.hidden / 2 / 128 * 128);
}

uint64_t KeyValueRank(const ModelSize& size) {
  return std::max<uint64_t>(128, size.hidden / 4 / 128 * 128);
}

void AddLatentAttention(const ModelSize& size, const std::string& prefix, const AddMatrix& add) {
  const uint64_t q_rank = QueryRank(size), kv_rank = KeyValueRank(size);
  const uint64_t head = size.head_dim + kRotated;
  add(prefix + "q_a_proj", q_rank, size.hidden);
  add(prefix + "q_b_proj", size.heads * head, q_rank);
  add(prefix + "kv_a_proj_with_mqa", kv_rank + kRotated, size.hidden);
  add(prefix + "kv_b_proj", size.heads * 2 * size.head_dim, kv_rank);
  add(prefix + "o_proj", size.hidden, size.heads * size.head_dim);
}

void AddMlp(const std::string& prefix, uint64_t hidden, uint64_t intermediate,
            const AddMatrix& add) {
  add(prefix + "gate_proj", intermediate, hidden);
  add(prefix + "up_proj", intermediate, hidden);
  add(prefix + "down_proj", hidden, intermediate);
}

}  // namespace blockscale
