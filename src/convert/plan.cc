#include "convert/plan.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace blockscale {
namespace {

// What stands in the way of converting this checkpoint, before any byte of data is read.
Status CheckConvertible(const Checkpoint& checkpoint, const std::vector<Fp8Matrix>& matrices) {
  const auto& quantization = checkpoint.config().quantization;
  const std::string config = JoinPath(checkpoint.folder(), kConfigFileName);
  if (matrices.empty())
    return InvalidInput("{}: holds no F8_E4M3 matrix; there is nothing to convert",
                        checkpoint.folder());
  if (!quantization)
    return InvalidInput(
        "{}: has no quantization_config, but the checkpoint holds {} F8_E4M3 "
        "matrices; restore the config that belongs to it",
        config, matrices.size());
  if (quantization->quant_method != "fp8")
    return InvalidInput(
        "{}: quant_method is '{}', but the tensors are FP8 with block scales "
        "('fp8'); restore the config that belongs to them",
        config, quantization->quant_method);
  for (const Fp8Matrix& matrix : matrices) {
    if (matrix.columns > kMaxColumns)
      return InvalidInput("{}: tensor '{}' has {} columns, more than the limit of {}",
                          matrix.weight.shard->file->path(), matrix.weight.info->name,
                          matrix.columns, kMaxColumns);
  }
  return OkStatus();
}

// A tensor that only an FP8 matrix could explain, and that none does.
Status CheckLeftOver(const TensorRef& tensor) {
  const TensorInfo& info = *tensor.info;
  if (info.name.ends_with(".weight_scale_inv"))
    return InvalidInput(
        "{}: tensor '{}' is the scale of an FP8 matrix that is not there; the "
        "checkpoint is incomplete",
        tensor.shard->file->path(), info.name);
  if (info.dtype == DType::kF8E5M2 || info.dtype == DType::kF8E4M3Fnuz ||
      info.dtype == DType::kF8E5M2Fnuz)
    return InvalidInput("{}: tensor '{}' is {}; only F8_E4M3 can be converted",
                        tensor.shard->file->path(), info.name, NameOf(info.dtype));
  return OkStatus();
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, ConversionPlan* plan)
      : checkpoint_(checkpoint), plan_(*plan) {
    for (const Fp8Matrix& matrix : plan_.matrices) {
      matrix_of_.emplace(matrix.weight.info, &matrix);
      consumed_.insert(matrix.scale.info);
    }
  }

  Status Run() {
    PlannedShard shard;
    const Shard* current = nullptr;
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      if (tensor.shard != current) {
        BLOCKSCALE_RETURN_IF_ERROR(Finish(std::exchange(shard, {})));
        current = tensor.shard;
        shard.name = current->name;
      }
      BLOCKSCALE_RETURN_IF_ERROR(Add(tensor, shard));
    }
    return Finish(std::move(shard));
  }

 private:
  Status AddOutput(TensorInfo info, PlannedShard& shard) {
    if (!names_.insert(info.name).second)
      return InvalidInput(
          "{}: tensor '{}' would stand twice in the output: the source has one of "
          "that name beside the matrix whose scale needs it",
          checkpoint_.folder(), info.name);
    shard.header.tensors.push_back(std::move(info));
    return OkStatus();
  }

  Status Add(const TensorRef& tensor, PlannedShard& shard) {
    if (consumed_.contains(tensor.info)) return OkStatus();
    const auto found = matrix_of_.find(tensor.info);
    const Fp8Matrix* matrix = found == matrix_of_.end() ? nullptr : found->second;
    shard.tensors.push_back({.source = tensor, .matrix = matrix});
    if (matrix == nullptr) {
      BLOCKSCALE_RETURN_IF_ERROR(CheckLeftOver(tensor));
      ++plan_.kept_tensors;
      return AddOutput(*tensor.info, shard);
    }
    const std::string& name = tensor.info->name;
    BLOCKSCALE_RETURN_IF_ERROR(AddOutput(
        {.name = name, .dtype = DType::kI8, .shape = {matrix->rows, matrix->columns}}, shard));
    return AddOutput(
        {.name = Int8ScaleName(name), .dtype = DType::kF32, .shape = {matrix->rows, 1}}, shard);
  }

  // Lays the shard out and notes where each of its tensors goes.
  Status Finish(PlannedShard shard) {
    if (shard.tensors.empty()) return OkStatus();
    BLOCKSCALE_ASSIGN_OR_RETURN(shard.header_bytes,
                                LayOutSafetensors(std::move(shard.header.tensors), &shard.header));
    std::unordered_map<std::string_view, uint64_t> offset_of;
    for (const TensorInfo& info : shard.header.tensors)
      offset_of.emplace(info.name, shard.header.data_start + info.begin);
    for (PlannedTensor& tensor : shard.tensors) {
      tensor.offset = offset_of.at(tensor.source.info->name);
      if (tensor.matrix != nullptr)
        tensor.scale_offset = offset_of.at(Int8ScaleName(tensor.source.info->name));
    }
    plan_.output_bytes += shard.header.data_bytes();
    plan_.file_bytes += shard.header.file_bytes();
    plan_.shards.push_back(std::move(shard));
    return OkStatus();
  }

  const Checkpoint& checkpoint_;
  ConversionPlan& plan_;
  std::unordered_map<const TensorInfo*, const Fp8Matrix*> matrix_of_;
  std::unordered_set<const TensorInfo*> consumed_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::string Int8ScaleName(const std::string& weight_name) { return weight_name + "_scale"; }

Result<ConversionPlan> MakeConversionPlan(const Checkpoint& checkpoint) {
  ConversionPlan plan;
  BLOCKSCALE_ASSIGN_OR_RETURN(plan.matrices, FindFp8Matrices(checkpoint));
  BLOCKSCALE_RETURN_IF_ERROR(CheckConvertible(checkpoint, plan.matrices));
  plan.source_shards = checkpoint.shards().size();
  plan.source_bytes = checkpoint.data_bytes();
  BLOCKSCALE_RETURN_IF_ERROR(Planner(checkpoint, &plan).Run());
  return plan;
}

}  // namespace blockscale
