// Small safetensors files and checkpoints for tests, written without the library's own layout code,
// so that a mistake there cannot hide.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace blockscale::testing {

struct TestTensor {
  std::string name;
  std::string dtype;  // wire name, "F8_E4M3"
  std::vector<uint64_t> shape;
  std::string bytes;
};

// Tensors in the order given, header unpadded, no metadata.
std::string TensorFile(const std::vector<TestTensor>& tensors);
// 8 bytes of length, then `json`, then `data`.
std::string RawTensorFile(const std::string& json, const std::string& data);

std::string FloatBytes(const std::vector<float>& values);    // F32, little endian
std::string Bf16Bytes(const std::vector<uint16_t>& values);  // bit patterns

// shard name -> its tensors; writes the shards, the index (which names every tensor) and `config`.
void WriteCheckpoint(const std::filesystem::path& folder,
                     const std::map<std::string, std::vector<TestTensor>>& shards,
                     const std::string& config);

// {"model_type": "minimax_m2", ..., quantization_config fp8 with block 128x128}
std::string Fp8Config();

}  // namespace blockscale::testing
