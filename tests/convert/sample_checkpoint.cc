#include "sample_checkpoint.h"

#include <algorithm>

#include "support/temp_folder.h"

namespace blockscale::testing {
namespace {

std::vector<float> Scales(uint64_t seed, size_t count) {
  std::vector<float> scales(count);
  for (size_t i = 0; i < count; ++i)
    scales[i] = (1.0f + 0.37f * static_cast<float>((i * 7 + seed) % 11)) * 0x1p-12f;
  return scales;
}

TestTensor Matrix(const std::string& name, uint64_t rows, uint64_t columns, uint64_t seed) {
  return {name, "F8_E4M3", {rows, columns}, RandomCodes(seed, rows * columns)};
}

TestTensor Floats(const std::string& name, std::vector<uint64_t> shape) {
  uint64_t count = 1;
  for (const uint64_t side : shape) count *= side;
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = 0.01f * static_cast<float>(i % 97) - 0.3f;
  return {name, "F32", std::move(shape), FloatBytes(values)};
}

TestTensor Bf16(const std::string& name, std::vector<uint64_t> shape) {
  uint64_t count = 1;
  for (const uint64_t side : shape) count *= side;
  std::vector<uint16_t> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<uint16_t>(0x3C00 + i % 1000);
  return {name, "BF16", std::move(shape), Bf16Bytes(values)};
}

// Row 5 all +0, row 6 all -0, and in row 7 the largest is 448 with many elements at 224: exact
// ties.
void AddHardRows(TestTensor& matrix) {
  const size_t columns = matrix.shape[1];
  std::fill_n(matrix.bytes.begin() + static_cast<std::ptrdiff_t>(5 * columns), columns, '\0');
  std::fill_n(matrix.bytes.begin() + static_cast<std::ptrdiff_t>(6 * columns), columns, '\x80');
  for (size_t column = 0; column < columns; ++column)
    matrix.bytes[7 * columns + column] = column % 3 == 0   ? '\x76'
                                         : column % 3 == 1 ? '\xF6'
                                                           : '\x7E';
}

}  // namespace

std::string RandomCodes(uint64_t seed, size_t count) {
  std::string codes(count, '\0');
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (char& code : codes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto byte = static_cast<uint8_t>(state >> 56);
    if ((byte & 0x7F) == 0x7F) byte ^= 0x10;
    code = static_cast<char>(byte);
  }
  return codes;
}

ShardMap SampleShards() {
  const std::string layer = "model.layers.0.";
  const std::string expert = layer + "block_sparse_moe.experts.1.";
  TestTensor hard = Matrix(layer + "self_attn.q_proj.weight", 200, 300, 2);
  AddHardRows(hard);
  return {
      {"model-00000-of-00009.safetensors",
       {Bf16("model.embed_tokens.weight", {32, 256}),
        Matrix(expert + "w1.weight", 128, 256, 1),
        hard,
        {layer + "self_attn.q_proj.weight_scale_inv", "F32", {2, 3}, FloatBytes(Scales(2, 6))},
        Floats(layer + "block_sparse_moe.gate.weight", {4, 256}),
        {"model.empty", "I64", {0, 7}, ""}}},
      {"model-00001-of-00009.safetensors",
       {Matrix(layer + "self_attn.kv_a_proj.weight", 576, 128, 3),
        {layer + "self_attn.kv_a_proj.scale",
         "BF16",
         {5, 1},
         Bf16Bytes({0x3A00, 0x3A10, 0x3A81, 0x3B02, 0x3933})},
        Matrix(expert + "w2.weight", 3, 5, 4),
        {expert + "w2.weight_scale", "F32", {}, FloatBytes({0.0123f})},
        Floats(layer + "block_sparse_moe.e_score_correction_bias", {4}),
        Bf16(layer + "input_layernorm.weight", {256}),
        Bf16("lm_head.weight", {32, 256})}},
      {"model-00002-of-00009.safetensors",
       {{expert + "w1.weight_scale_inv", "F32", {1, 2}, FloatBytes(Scales(1, 2))}}},
  };
}

void WriteSample(const std::filesystem::path& folder) { WriteSample(folder, SampleShards()); }

void WriteSample(const std::filesystem::path& folder, const ShardMap& shards) {
  WriteCheckpoint(folder, shards, Fp8Config());
  WriteFile(folder / "tokenizer.json", "{\"made\": \"up\"}\n");
  WriteFile(folder / "generation_config.json", "{}\n");
  WriteFile(folder / "chat_template.jinja", "{{ messages }}");
  WriteFile(folder / "modeling_minimax_m2.py", "pass\n");
  // Not in the index: nobody may read or copy it.
  WriteFile(folder / "consolidated.safetensors", "stray");
}

std::map<std::string, std::string> FolderBytes(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (name == "conversion_report.html" || name == "conversion_state.json") continue;
    if (entry.is_regular_file()) files[name] = ReadFile(entry.path());
  }
  return files;
}

ConvertOptions OptionsFor(const std::filesystem::path& source,
                          const std::filesystem::path& output) {
  return {.source = source.string(),
          .output = output.string(),
          .recipe = RecipeFor("int8-channel"),
          .threads = 2};
}

}  // namespace blockscale::testing
