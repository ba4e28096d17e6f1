// conversion_state.json: what a conversion has finished, so that a killed run can be continued and
// a changed source is noticed. It is rewritten whole and atomically after every shard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "blockscale/convert.h"
#include "blockscale/verify.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_system.h"

namespace blockscale {

inline constexpr char kStateFileName[] = "conversion_state.json";

// What must not change between a run and its continuation.
struct SourceFingerprint {
  struct File {
    std::string name;
    uint64_t size = 0;
    int64_t modified_ns = 0;
    bool operator==(const File&) const = default;
  };
  std::string path;           // canonical
  std::string config_digest;  // XXH3-128 of config.json
  std::string index_digest;   // of the index, "" without one
  std::vector<File> files;    // the shards
};

struct FinishedShard {
  std::string name;
  uint64_t bytes = 0;
  std::string digest;                   // XXH3-128 of the file
  std::vector<MatrixQuality> matrices;  // that it holds, in plan order
};

struct ConversionState {
  std::string int8_range;  // "127" or "128"
  std::string recipe;      // RecipeJson
  SourceFingerprint source;
  std::vector<FinishedShard> shards;
};

Result<SourceFingerprint> FingerprintOf(const Checkpoint& checkpoint);

// The first thing in which `now` differs from what the journal holds, as a sentence; "" if none.
std::string FirstDifference(const SourceFingerprint& journalled, const SourceFingerprint& now);

Result<ConversionState> ParseConversionState(std::string_view json, const std::string& file);

// Keeps the journal on disk in step with the run.
class Journal {
 public:
  Journal(FileSystem& files, std::string folder, ConversionState state);
  const ConversionState& state() const { return state_; }
  // Writes the file: flushed to the disk when this returns.
  Status Save();
  Status AddShard(FinishedShard shard);

 private:
  FileSystem& files_;
  std::string folder_;
  ConversionState state_;
  std::vector<std::string> shard_texts_;  // serialised once each
};

}  // namespace blockscale
