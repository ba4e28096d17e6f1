#include "backends/layer_tokens.h"

#include <random>

#include "base/status.h"
#include "checkpoint/tensor_file.h"
#include "moe/routing.h"

namespace blockscale {
namespace {

// Of shape [rows, columns], rows 0 for any number.
Result<const TensorInfo*> Find(const TensorFile& file, const std::string& name, uint64_t rows,
                               uint64_t columns) {
  const TensorInfo* tensor = file.Find(name);
  if (tensor == nullptr)
    return InvalidInput("{}: has no tensor '{}'; it holds hidden_states, topk_ids and topk_weights",
                        file.path(), name);
  if (tensor->shape.size() == 2 && tensor->shape[1] == columns &&
      (rows == 0 ? tensor->shape[0] > 0 : tensor->shape[0] == rows))
    return tensor;
  return InvalidInput("{}: tensor '{}' is {}; the layer takes [{}, {}]", file.path(), name,
                      ShapeText(tensor->shape), rows == 0 ? "tokens" : std::to_string(rows),
                      columns);
}

Status WrongType(const TensorFile& file, const TensorInfo& tensor, const char* wanted) {
  return InvalidInput("{}: tensor '{}' is {}; it must be {}", file.path(), tensor.name,
                      NameOf(tensor.dtype), wanted);
}

Result<std::vector<float>> ReadFloats(const TensorFile& file, const TensorInfo& tensor) {
  if (tensor.dtype == DType::kF32) return file.Read<float>(tensor);
  if (tensor.dtype != DType::kBF16) return WrongType(file, tensor, "F32 or BF16");
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<uint16_t> codes, file.Read<uint16_t>(tensor));
  std::vector<float> values;
  for (const uint16_t code : codes) values.push_back(BF16::Decode(code));
  return values;
}

}  // namespace

Result<LayerTokens> ReadTokens(FileSystem& files, const std::string& path, const MoeSpec& spec) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(files, path));
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorInfo* states,
                              Find(file, "hidden_states", 0, spec.hidden));
  const uint64_t rows = states->shape[0];
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorInfo* ids, Find(file, "topk_ids", rows, spec.top_k));
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorInfo* weights,
                              Find(file, "topk_weights", rows, spec.top_k));
  if (ids->dtype != DType::kI32) return WrongType(file, *ids, "I32");
  if (weights->dtype != DType::kF32) return WrongType(file, *weights, "F32");
  LayerTokens tokens;
  BLOCKSCALE_ASSIGN_OR_RETURN(tokens.hidden_states, ReadFloats(file, *states));
  BLOCKSCALE_ASSIGN_OR_RETURN(tokens.ids, file.Read<int32_t>(*ids));
  BLOCKSCALE_ASSIGN_OR_RETURN(tokens.weights, file.Read<float>(*weights));
  BLOCKSCALE_RETURN_IF_ERROR(CheckIds(tokens.ids, spec.top_k, spec.experts));
  return tokens;
}

Result<std::vector<float>> ReadOutput(FileSystem& files, const std::string& path,
                                      const MoeSpec& spec, const std::vector<int32_t>& ids) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::Open(files, path));
  const uint64_t rows = ids.size() / spec.top_k;
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorInfo* output, Find(file, "output", rows, spec.hidden));
  BLOCKSCALE_ASSIGN_OR_RETURN(const TensorInfo* other_ids,
                              Find(file, "topk_ids", rows, spec.top_k));
  if (other_ids->dtype != DType::kI32) return WrongType(file, *other_ids, "I32");
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<int32_t> other, file.Read<int32_t>(*other_ids));
  if (other != ids)
    return InvalidInput("{}: its tokens chose other experts; compare runs of the same tokens",
                        path);
  return ReadFloats(file, *output);
}

Result<LayerTokens> RandomTokens(const MoeSpec& spec, size_t tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  // Twelve uniforms less six: the same numbers with every standard library.
  const auto normal = [&] {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 40) * 0x1p-24f;
    return sum;
  };
  LayerTokens made;
  for (size_t i = 0; i < tokens * spec.hidden; ++i)
    made.hidden_states.push_back(BF16::Decode(BF16::Encode(normal())));
  std::vector<float> logits(tokens * spec.experts);
  for (float& logit : logits) logit = normal();
  const RoutingSpec routing{.experts = spec.experts, .top_k = spec.top_k};
  BLOCKSCALE_ASSIGN_OR_RETURN(Routing routed, RouteTokens(routing, logits, {}));
  made.ids = std::move(routed.ids);
  made.weights = std::move(routed.weights);
  return made;
}

}  // namespace blockscale
