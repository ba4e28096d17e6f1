#include "sample_model.h"

#include <stdexcept>

namespace blockscale::testing {

std::string ConfigText(const std::string& quantization, const std::string& more, int layers) {
  return "{" + more + "\"num_hidden_layers\":" + std::to_string(layers) + "," +
         R"("architectures":["MiniMaxM2ForCausalLM"],"model_type":"minimax_m2","hidden_size":8,
    "intermediate_size":4,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":4,
    "num_local_experts":2,"vocab_size":4,"use_routing_bias":true,
    "quantization_config":)" +
         quantization + "}";
}

std::string Int8Quantization(const std::string& targets, const std::string& ignore,
                             const std::string& type, const std::string& format) {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","quantization_status":"compressed","global_compression_ratio":null,
    "config_groups":{"group_0":{"targets":)" +
         targets + R"(,
    "weights":{"num_bits":8,"type":")" +
         type + R"(","symmetric":true,"strategy":"channel","dynamic":false},
    "input_activations":{"num_bits":8,"type":")" +
         type + R"(","symmetric":true,"strategy":"token","dynamic":true}}},
    "ignore":)" +
         ignore + "}";
}

void AddInt8(Tensors& tensors, const std::string& module, uint64_t rows, uint64_t columns) {
  tensors.push_back({module + ".weight", "I8", {rows, columns}, std::string(rows * columns, '\1')});
  tensors.push_back(
      {module + ".weight_scale", "F32", {rows, 1}, FloatBytes(std::vector<float>(rows, 0.01f))});
}

Tensors GoodTensors() {
  const std::string layer = "model.layers.0.", moe = layer + "block_sparse_moe.";
  Tensors tensors = {
      {"model.embed_tokens.weight", "BF16", {kVocab, kHidden}, std::string(64, 'e')},
      {"model.norm.weight", "BF16", {kHidden}, std::string(16, 'n')},
      {"lm_head.weight", "BF16", {kVocab, kHidden}, std::string(64, 'l')},
      {layer + "input_layernorm.weight", "BF16", {kHidden}, std::string(16, 'n')},
      {layer + "post_attention_layernorm.weight", "BF16", {kHidden}, std::string(16, 'n')},
      {layer + "self_attn.q_norm.weight", "BF16", {kHeads * kHeadDim}, std::string(16, 'n')},
      {layer + "self_attn.k_norm.weight", "BF16", {kHeads * kHeadDim}, std::string(16, 'n')},
      {moe + "e_score_correction_bias", "F32", {kExperts}, std::string(8, '\0')},
      {moe + "gate.weight", "F32", {kExperts, kHidden}, std::string(64, '\0')}};
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"})
    AddInt8(tensors, layer + "self_attn." + part, kHeads * kHeadDim, kHidden);
  for (uint64_t expert = 0; expert < kExperts; ++expert) {
    const std::string prefix = moe + "experts." + std::to_string(expert) + ".";
    AddInt8(tensors, prefix + "w1", kInner, kHidden);
    AddInt8(tensors, prefix + "w2", kHidden, kInner);
    AddInt8(tensors, prefix + "w3", kInner, kHidden);
  }
  return tensors;
}

Tensors Fp8Tensors() {
  Tensors tensors = GoodTensors();
  for (TestTensor& tensor : tensors) {
    if (tensor.dtype == "I8") tensor.dtype = "F8_E4M3";
    if (!tensor.name.ends_with(".weight_scale")) continue;
    const std::string weight = tensor.name.substr(0, tensor.name.size() - 6);
    const std::vector<uint64_t> shape = Find(tensors, weight).shape;
    const uint64_t rows = shape[0] / kBlock, columns = shape[1] / kBlock;
    tensor = {tensor.name + "_inv",
              "F32",
              {rows, columns},
              FloatBytes(std::vector<float>(rows * columns, 0.5f))};
  }
  return tensors;
}

TestTensor& Find(Tensors& tensors, const std::string& name) {
  for (TestTensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  throw std::out_of_range(name);
}

void Remove(Tensors& tensors, const std::string& name) {
  std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
}

}  // namespace blockscale::testing
