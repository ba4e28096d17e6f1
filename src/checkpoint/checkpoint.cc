#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <map>

namespace blockscale {
namespace {

constexpr char kSingleFileName[] = "model.safetensors";

// Puts what is wrong into `tolerate` or, without it, returns it as the error.
Status Report(std::vector<Finding>* tolerate, std::string kind, std::string message) {
  if (tolerate == nullptr) return {StatusCode::kInvalidInput, std::move(message)};
  tolerate->push_back({std::move(kind), std::move(message)});
  return OkStatus();
}

Result<std::unique_ptr<Shard>> OpenShard(FileSystem& files, const std::string& folder,
                                         const std::string& name) {
  auto shard = std::make_unique<Shard>();
  shard->name = name;
  BLOCKSCALE_ASSIGN_OR_RETURN(shard->file, files.OpenForRead(JoinPath(folder, name)));
  BLOCKSCALE_ASSIGN_OR_RETURN(shard->header, ReadSafetensorsHeader(*shard->file));
  return shard;
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(FileSystem& files, const std::string& folder,
                                    std::vector<Finding>* tolerate) {
  Checkpoint checkpoint;
  checkpoint.files_ = &files;
  checkpoint.folder_ = folder;
  BLOCKSCALE_ASSIGN_OR_RETURN(const FileFacts facts, files.Stat(folder));
  if (!facts.is_directory)
    return InvalidInput("{}: is not a folder; give the folder that holds config.json", folder);

  const std::string config_path = JoinPath(folder, kConfigFileName);
  BLOCKSCALE_ASSIGN_OR_RETURN(checkpoint.config_text_,
                              ReadTextFile(files, config_path, kMaxConfigBytes));
  BLOCKSCALE_ASSIGN_OR_RETURN(checkpoint.config_,
                              ParseHfConfig(checkpoint.config_text_, config_path));
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint.ReadIndex());
  BLOCKSCALE_RETURN_IF_ERROR(checkpoint.OpenShards(tolerate));
  return checkpoint;
}

Status Checkpoint::ReadIndex() {
  const std::string index_path = JoinPath(folder_, kIndexFileName);
  if (files_->Exists(index_path)) {
    BLOCKSCALE_ASSIGN_OR_RETURN(index_text_, ReadTextFile(*files_, index_path, kMaxIndexBytes));
    BLOCKSCALE_ASSIGN_OR_RETURN(index_, ParseIndex(index_text_, index_path));
    return OkStatus();
  }
  if (!files_->Exists(JoinPath(folder_, kSingleFileName)))
    return InvalidInput("{}: has neither {} nor {}; is this a checkpoint folder?", folder_,
                        kIndexFileName, kSingleFileName);
  // Without an index, the one file names its tensors itself.
  BLOCKSCALE_ASSIGN_OR_RETURN(const std::unique_ptr<Shard> only,
                              OpenShard(*files_, folder_, kSingleFileName));
  for (const TensorInfo& tensor : only->header.tensors)
    index_.weight_map.emplace_back(tensor.name, kSingleFileName);
  return OkStatus();
}

Status Checkpoint::OpenShards(std::vector<Finding>* tolerate) {
  std::map<std::string, std::vector<const std::string*>> names_of;  // shard -> its tensors
  for (const auto& [tensor, shard] : index_.weight_map) names_of[shard].push_back(&tensor);
  for (const auto& [name, tensors] : names_of) {
    Result<std::unique_ptr<Shard>> opened = OpenShard(*files_, folder_, name);
    if (!opened.ok()) {
      BLOCKSCALE_RETURN_IF_ERROR(Report(tolerate, "unreadable-shard", opened.status().message()));
      continue;
    }
    shards_.push_back(std::move(opened).value());
    const Shard& shard = *shards_.back();
    std::unordered_map<std::string_view, bool> found;
    for (const std::string* tensor : tensors) found.emplace(*tensor, false);
    for (const TensorInfo& info : shard.header.tensors) {
      const auto entry = found.find(info.name);
      if (entry == found.end()) continue;  // the index does not assign it to this shard
      entry->second = true;
      by_name_.emplace(info.name, tensors_.size());
      tensors_.push_back({&shard, &info});
    }
    for (const std::string* tensor : tensors) {
      if (found[*tensor]) continue;
      BLOCKSCALE_RETURN_IF_ERROR(
          Report(tolerate, "missing-tensor",
                 fmt::format("{}: the index places tensor '{}' in {}, which does not hold it",
                             folder_, *tensor, name)));
    }
  }
  return OkStatus();
}

TensorRef Checkpoint::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? TensorRef() : tensors_[found->second];
}

uint64_t Checkpoint::data_bytes() const {
  uint64_t sum = 0;
  for (const TensorRef& tensor : tensors_) sum += tensor.info->bytes();
  return sum;
}

Status Checkpoint::Read(TensorRef tensor, uint64_t offset, std::span<std::byte> out) const {
  BLOCKSCALE_CHECK(offset + out.size() <= tensor.info->bytes(), "{}: reading {}+{} of {} bytes",
                   tensor.info->name, offset, out.size(), tensor.info->bytes());
  const uint64_t start = tensor.shard->header.data_start + tensor.info->begin;
  return tensor.shard->file->ReadAt(start + offset, out);
}

Result<std::vector<std::byte>> Checkpoint::ReadAll(TensorRef tensor, uint64_t limit) const {
  const uint64_t bytes = tensor.info->bytes();
  if (bytes > limit)
    return InvalidInput("{}: tensor '{}' has {} bytes, more than the limit of {} for its kind",
                        tensor.shard->file->path(), tensor.info->name, bytes, limit);
  std::vector<std::byte> data(bytes);
  BLOCKSCALE_RETURN_IF_ERROR(Read(tensor, 0, data));
  return data;
}

}  // namespace blockscale
