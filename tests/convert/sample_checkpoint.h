// The checkpoint that the converter's tests run on: small, and odd in every way that a real one may
// be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "blockscale/convert.h"
#include "support/tensor_file.h"

namespace blockscale::testing {

using ShardMap = std::map<std::string, std::vector<TestTensor>>;

// Three shards, numbered from 0 of a number that is wrong:
//  - matrices of 128x256, 200x300 (edge blocks), 576x128 and 3x5, the last with one scale for all
//  - a scale in another shard than its matrix, scales of BF16, scales named .scale and
//  .weight_scale
//  - rows of +0, rows of -0, elements at half their row's largest (exact ties)
//  - a shard that holds nothing but a scale
//  - embedding, lm_head, an F32 gate, norms, a bias, an empty tensor, all to be kept
ShardMap SampleShards();

// The shards, index, config, tokeniser and the model's own code.
void WriteSample(const std::filesystem::path& folder);
void WriteSample(const std::filesystem::path& folder, const ShardMap& shards);

// E4M3 codes without NaN, a function of the seed.
std::string RandomCodes(uint64_t seed, size_t count);

// Every file of a folder by relative path, for comparison. Files that speak of time are left out:
// the report page and the journal.
std::map<std::string, std::string> FolderBytes(const std::filesystem::path& folder);

ConvertOptions OptionsFor(const std::filesystem::path& source, const std::filesystem::path& output);

}  // namespace blockscale::testing
