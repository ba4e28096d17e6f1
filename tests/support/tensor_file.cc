#include "support/tensor_file.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace blockscale::testing {

std::string RawTensorFile(const std::string& json, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(file.data(), &length, 8);
  return file + json + data;
}

std::string TensorFile(const std::vector<TestTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return RawTensorFile(header.dump(), data);
}

std::string FloatBytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string Bf16Bytes(const std::vector<uint16_t>& values) {
  std::string bytes(values.size() * 2, '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void WriteCheckpoint(const std::filesystem::path& folder,
                     const std::map<std::string, std::vector<TestTensor>>& shards,
                     const std::string& config) {
  nlohmann::json index;
  uint64_t total = 0;
  index["weight_map"] = nlohmann::json::object();
  for (const auto& [shard, tensors] : shards) {
    WriteFile(folder / shard, TensorFile(tensors));
    for (const TestTensor& tensor : tensors) {
      index["weight_map"][tensor.name] = shard;
      total += tensor.bytes.size();
    }
  }
  index["metadata"]["total_size"] = total;
  WriteFile(folder / "model.safetensors.index.json", index.dump(2));
  WriteFile(folder / "config.json", config);
}

std::string Fp8Config() {
  return R"({
  "architectures": ["MiniMaxM2ForCausalLM"],
  "model_type": "minimax_m2",
  "hidden_size": 256,
  "num_hidden_layers": 1,
  "num_local_experts": 2,
  "rms_norm_eps": 1e-06,
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "float8_e4m3fn",
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  },
  "tie_word_embeddings": false
}
)";
}

}  // namespace blockscale::testing
