// The streaming engine: reads chunks of rows, converts or copies them, writes them where the plan
// says, and hands finished shards on to be flushed and journalled while the next ones stream.
//
//   next chunk (in order) -> read, convert, write (parallel) -> quality, progress (in order)
//                                                                     | last chunk of a shard
//                                                                     v
//                                       finisher thread: digest, fsync, rename, journal
//
// Memory is chunks in flight, whatever the size of model, shard or matrix. Every output byte
// depends on the source alone, never on threads or chunk size.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "blockscale/convert.h"
#include "convert/journal.h"
#include "convert/plan.h"

namespace blockscale {

struct EngineJob {
  const Checkpoint* source = nullptr;
  const ConversionPlan* plan = nullptr;
  std::vector<const PlannedShard*> shards;  // to do, in order
  std::string output;                       // folder, exists
  unsigned threads = 1;
  uint64_t chunk_rows = 0;  // 0: by size alone
  const std::atomic<bool>* stop = nullptr;
  std::function<void(uint64_t bytes)> wrote;  // tensor bytes just written; called in order
};

// Runs the job. `journal` gains every finished shard, and `finished` is called after each. On an
// error or stop, what is journalled stays and partial files are removed.
Status RunEngine(FileSystem& files, const EngineJob& job, Journal& journal,
                 const std::function<void(const std::string& shard)>& finished);

}  // namespace blockscale
