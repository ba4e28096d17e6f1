#include "convert/compressed_tensors_config.h"

#include <algorithm>

#include "model/tensor_class.h"

namespace blockscale {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kWeight = ".weight";

bool IsLinearThatStays(const PlannedTensor& tensor) {
  const TensorInfo& info = *tensor.source.info;
  if (tensor.matrix != nullptr || info.shape.size() != 2) return false;
  if (!std::string_view(info.name).ends_with(kWeight)) return false;
  switch (ClassOf(info.name)) {
    case TensorClass::kNorm:
      return false;
    case TensorClass::kEmbedding:
      return info.name.ends_with("lm_head.weight");
    case TensorClass::kExperts:
    case TensorClass::kAttention:
    case TensorClass::kRouter:
    case TensorClass::kOther:
      return true;
  }
  return true;
}

}  // namespace

std::vector<std::string> IgnoreList(const ConversionPlan& plan) {
  // lm_head always: a checkpoint with tied embeddings has no tensor for it, but a module.
  std::vector<std::string> ignore = {"lm_head"};
  bool gates = false;
  for (const PlannedShard& shard : plan.shards) {
    for (const PlannedTensor& tensor : shard.tensors) {
      if (!IsLinearThatStays(tensor)) continue;
      const std::string& name = tensor.source.info->name;
      const std::string module = name.substr(0, name.size() - kWeight.size());
      gates |= module.ends_with(".gate");
      if (module != "lm_head") ignore.push_back(module);
    }
  }
  std::sort(ignore.begin() + 1, ignore.end());
  if (gates) ignore.push_back("re:.*\\.gate$");
  return ignore;
}

OrderedJson Int8QuantizationConfig(const std::vector<std::string>& ignore) {
  OrderedJson group = {{"targets", {"Linear"}},
                       {"weights",
                        {{"num_bits", 8},
                         {"type", "int"},
                         {"symmetric", true},
                         {"strategy", "channel"},
                         {"dynamic", false}}},
                       {"input_activations",
                        {{"num_bits", 8},
                         {"type", "int"},
                         {"symmetric", true},
                         {"strategy", "token"},
                         {"dynamic", true}}}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups", {{"group_0", std::move(group)}}},
          {"ignore", ignore}};
}

std::string RewriteConfig(const HfConfig& source, const std::vector<std::string>& ignore) {
  OrderedJson document = source.json;
  OrderedJson* at = &document;
  for (const std::string& key : source.quantization->json_path) at = &(*at)[key];
  *at = Int8QuantizationConfig(ignore);
  return document.dump(2) + "\n";
}

}  // namespace blockscale
