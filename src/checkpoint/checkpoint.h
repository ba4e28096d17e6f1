// A checkpoint folder opened for reading: config, index and the header of every shard that the
// index names. Tensor data is read on demand; nothing is mapped, so a file that shrinks under us is
// an error and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_system.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/index.h"
#include "checkpoint/safetensors.h"

namespace blockscale {

struct Shard {
  std::string name;  // as the index spells it, relative to the folder
  std::unique_ptr<ReadableFile> file;
  SafetensorsHeader header;
};

// Where a tensor is: valid while its Checkpoint lives.
struct TensorRef {
  const Shard* shard = nullptr;
  const TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }
};

// Something about a checkpoint that a user should know and that does not stop a reader.
struct Finding {
  std::string kind;     // "unindexed-shard", "missing-tensor", "unindexed-tensor", ...
  std::string message;  // one line: object, value, what to do
};

class Checkpoint {
 public:
  // Opens `folder`. Without an index, a single model.safetensors is taken. A shard or a tensor that
  // the index names and that is not there is an error, unless `tolerate` is given: then it becomes
  // a finding there (for `inspect`), and opening goes on.
  static Result<Checkpoint> Open(FileSystem& files, const std::string& folder,
                                 std::vector<Finding>* tolerate = nullptr);

  const std::string& folder() const { return folder_; }
  FileSystem& files() const { return *files_; }
  const HfConfig& config() const { return config_; }
  const std::string& config_text() const { return config_text_; }
  const std::string& index_text() const { return index_text_; }  // "" when there is no index
  const CheckpointIndex& index() const { return index_; }
  // Shards in the order of their names (by bytes).
  const std::vector<std::unique_ptr<Shard>>& shards() const { return shards_; }
  // Every tensor that the index names, by shard, then in file order.
  const std::vector<TensorRef>& tensors() const { return tensors_; }
  // Null when the index does not name it.
  TensorRef Find(std::string_view name) const;
  uint64_t data_bytes() const;  // of the indexed tensors

  // Reads bytes [offset, offset + out.size()) of a tensor.
  Status Read(TensorRef tensor, uint64_t offset, std::span<std::byte> out) const;
  // Reads a small tensor whole; refuses more than `limit` bytes.
  Result<std::vector<std::byte>> ReadAll(TensorRef tensor, uint64_t limit) const;

 private:
  Status ReadIndex();
  Status OpenShards(std::vector<Finding>* tolerate);

  FileSystem* files_ = nullptr;
  std::string folder_;
  HfConfig config_;
  std::string config_text_;
  CheckpointIndex index_;
  std::string index_text_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<TensorRef> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // keys live in the shards' headers
};

}  // namespace blockscale
