#include "convert/plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "convert/spelling.h"
#include "convert/stacked_experts.h"
#include "convert/targets.h"
#include "model/tensor_class.h"

namespace blockscale {
namespace {

using Way = OutputMatrix::Way;
using Role = SpeltTensor::Role;

// A tensor that only a quantised matrix could explain, and that none does.
Status CheckLeftOver(const Checkpoint& checkpoint, const TensorRef& tensor) {
  const TensorInfo& info = *tensor.info;
  constexpr std::string_view kScale = ".weight_scale_inv";
  if (info.name.ends_with(kScale)) {
    const TensorRef weight =
        checkpoint.Find(info.name.substr(0, info.name.size() - kScale.size()) + ".weight");
    if (weight) return CheckLeftOver(checkpoint, weight);
  }
  if (info.name.ends_with(kScale))
    return InvalidInput(
        "{}: tensor '{}' is the scale of an FP8 matrix that is not there; the "
        "checkpoint is incomplete",
        tensor.shard->file->path(), info.name);
  if (info.dtype == DType::kF8E5M2 || info.dtype == DType::kF8E4M3Fnuz ||
      info.dtype == DType::kF8E5M2Fnuz)
    return InvalidInput("{}: tensor '{}' is {}; only F8_E4M3 can be converted",
                        tensor.shard->file->path(), info.name, NameOf(info.dtype));
  if (info.dtype == DType::kF8E4M3)
    return InvalidInput("{}: tensor '{}' is F8_E4M3 {} and no matrix with scales",
                        tensor.shard->file->path(), info.name, ShapeText(info.shape));
  return OkStatus();
}

Way WayOf(const StoredMatrix& from, const MatrixTarget& to) {
  if (to.spec == from.spec) return Way::kRepack;
  if (to.rule == ScaleRule::kExactCast) return Way::kExactCast;
  const bool fp8 = from.spec.element == Format::kE4M3 && from.spec.scheme != Scheme::kMxfp8;
  if (fp8 && to.spec.scheme == Scheme::kInt8Channel && to.rule == ScaleRule::kAbsmax)
    return Way::kFp8ToInt8;
  return Way::kRecode;
}

// "a.self_attn.q_proj" -> "a.self_attn.qkv": matrices that one kernel call takes together.
std::string FusedName(const std::string& module) {
  const size_t dot = module.rfind('.');
  const std::string parent = module.substr(0, dot + 1), last = module.substr(dot + 1);
  for (const char* part : {"q_proj", "k_proj", "v_proj", "query", "key", "value"})
    if (last == part) return parent + "qkv_proj";
  for (const char* part : {"w1", "w3", "gate_proj", "up_proj"})
    if (last == part) return parent + "gate_up_proj";
  return module;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const Targets& targets, Int8Range range,
          ConversionPlan* plan)
      : checkpoint_(checkpoint), targets_(targets), range_(range), plan_(*plan) {}

  Status Run() {
    IndexMatrices();
    if (plan_.dialect == Dialect::kGptOss) {
      BLOCKSCALE_ASSIGN_OR_RETURN(stacks_,
                                  FindExpertStacks(checkpoint_, plan_.stored, targets_.changes));
      for (const ExpertStack& stack : stacks_.stacks) stack_of_.emplace(stack.first, &stack);
    }
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
  // Where an offset is to be noted once the shard is laid out.
  struct Place {
    std::string tensor;
    uint64_t* offset;
    uint64_t extra;  // bytes into the tensor
  };

  void IndexMatrices() {
    std::unordered_map<const TensorInfo*, bool> changes;
    for (size_t i = 0; i < plan_.stored.matrices.size(); ++i) {
      const StoredMatrix& matrix = plan_.stored.matrices[i];
      of_tensor_[matrix.codes.info].push_back(i);
      for (const TensorRef& part :
           {matrix.codes, matrix.scales, matrix.global, matrix.input_scale, matrix.shape}) {
        if (!part) continue;
        known_.insert(part.info);
        if (targets_.changes[i]) consumed_.insert(part.info);
      }
      Describe(matrix, targets_.of[i].spec);
    }
    for (const StoredBias& bias : plan_.stored.biases)
      if (consumed_.contains(CodesOfBias(bias))) consumed_.insert(bias.values.info);
  }

  // The stacked tensor that a stacked bias belongs to: they share their stem.
  const TensorInfo* CodesOfBias(const StoredBias& bias) const {
    const std::string& name = bias.values.info->name;
    const TensorRef codes = checkpoint_.Find(
        name.substr(0, name.size() - std::string_view("_bias").size()) + "_blocks");
    return codes.info;
  }

  // What the new config will say of a matrix.
  void Describe(const StoredMatrix& matrix, const QuantSpec& spec) {
    if (spec.has_scales()) {
      plan_.quantised.push_back({matrix.module, spec});
      return;
    }
    const TensorClass of = ClassOf(matrix.module + ".weight");
    if (of == TensorClass::kNorm) return;
    if (of == TensorClass::kEmbedding && !matrix.module.ends_with("head")) return;
    plan_.plain_linear.push_back(matrix.module);
  }

  Status Add(const TensorRef& tensor, PlannedShard& shard) {
    if (const auto stack = stack_of_.find(tensor.info); stack != stack_of_.end())
      BLOCKSCALE_RETURN_IF_ERROR(AddStack(*stack->second, shard));
    if (stacks_.consumed.contains(tensor.info)) return OkStatus();
    if (!consumed_.contains(tensor.info)) return AddCopy(tensor, shard);
    const auto found = of_tensor_.find(tensor.info);
    if (found == of_tensor_.end()) return OkStatus();  // scales go with their matrix
    for (const size_t index : found->second) {
      if (!targets_.changes[index])
        return InvalidInput(
            "{}: tensor '{}' holds many experts; the recipe keeps '{}' and "
            "converts others of them",
            tensor.shard->file->path(), tensor.info->name, plan_.stored.matrices[index].module);
      BLOCKSCALE_RETURN_IF_ERROR(AddMatrix(index, shard));
    }
    return AddSplitBiases(tensor, shard);
  }

  Status AddCopy(const TensorRef& tensor, PlannedShard& shard) {
    if (!known_.contains(tensor.info))
      BLOCKSCALE_RETURN_IF_ERROR(CheckLeftOver(checkpoint_, tensor));
    ++plan_.kept_tensors;
    shard.items.push_back({.copy = tensor});
    // Items do not move any more when their places are noted (Finish).
    copies_.emplace_back(shard.items.size() - 1, tensor.info->name);
    return AddOutput(*tensor.info, shard);
  }

  Status AddMatrix(size_t index, PlannedShard& shard) {
    const StoredMatrix& source = plan_.stored.matrices[index];
    OutputMatrix& matrix = NewMatrix(index, shard);
    matrix.sources = {&source};
    matrix.rows = source.rows;
    for (const SpeltTensor& spelt :
         Spell(plan_.dialect, source.module, matrix.encode.spec, source.rows, source.columns)) {
      if (spelt.role == Role::kCodes) matrix.name = spelt.info.name;
      places_.push_back({spelt.info.name, OffsetOf(matrix, spelt.role), 0});
      BLOCKSCALE_RETURN_IF_ERROR(AddOutput(spelt.info, shard));
    }
    if (matrix.way == Way::kRepack && source.global && source.input_scale) {
      const std::string name =
          source.module +
          (plan_.dialect == Dialect::kModelOpt ? ".input_scale" : ".input_global_scale");
      places_.push_back({name, &matrix.input_scale_offset, 0});
      return AddOutput({.name = name, .dtype = DType::kF32, .shape = {1}}, shard);
    }
    return OkStatus();
  }

  OutputMatrix& NewMatrix(size_t index, PlannedShard& shard) {
    const StoredMatrix& source = plan_.stored.matrices[index];
    const MatrixTarget& target = targets_.of[index];
    plan_.matrices.push_back(std::make_unique<OutputMatrix>());
    OutputMatrix& matrix = *plan_.matrices.back();
    matrix.way = WayOf(source, target);
    matrix.columns = source.columns;
    matrix.encode = {.spec = target.spec, .rule = target.rule, .int8_range = range_};
    if (target.spec.has_global()) {
      matrix.global_kind = GlobalKindOf(plan_.dialect);
      matrix.group = GroupOf(source);
    }
    shard.items.push_back({.matrix = &matrix});
    return matrix;
  }

  static uint64_t* OffsetOf(OutputMatrix& matrix, Role role) {
    switch (role) {
      case Role::kCodes:
        return &matrix.codes_offset;
      case Role::kScales:
        return &matrix.scales_offset;
      case Role::kGlobal:
        return &matrix.global_offset;
      case Role::kShape:
        return &matrix.shape_offset;
    }
    return nullptr;
  }

  // All matrices of a fused module are in its group, wherever their shards are.
  size_t GroupOf(const StoredMatrix& source) {
    if (groups_.empty()) {
      for (size_t i = 0; i < plan_.stored.matrices.size(); ++i) {
        const StoredMatrix& matrix = plan_.stored.matrices[i];
        if (!targets_.changes[i] || !targets_.of[i].spec.has_global()) continue;
        const auto [at, isnew] = groups_.emplace(FusedName(matrix.module), plan_.groups.size());
        if (isnew) plan_.groups.emplace_back();
        plan_.groups[at->second].push_back(&matrix);
      }
    }
    return groups_.at(FusedName(source.module));
  }

  // gpt-oss as the target: one projection of all experts.
  Status AddStack(const ExpertStack& stack, PlannedShard& shard) {
    const uint64_t experts = stack.experts.size(), parts = stack.experts.front().size();
    const StoredMatrix& first = plan_.stored.matrices[stack.experts.front().front()];
    const uint64_t rows = first.rows * parts;
    const std::vector<SpeltTensor> spelt = SpellStacked(stack.stem, experts, rows, first.columns);
    for (const SpeltTensor& tensor : spelt)
      BLOCKSCALE_RETURN_IF_ERROR(AddOutput(tensor.info, shard));
    for (uint64_t expert = 0; expert < experts; ++expert) {
      OutputMatrix& matrix = NewMatrix(stack.experts[expert].front(), shard);
      matrix.name = fmt::format("{}[{}]", spelt[0].info.name, expert);
      matrix.rows = rows;
      for (const size_t index : stack.experts[expert])
        matrix.sources.push_back(&plan_.stored.matrices[index]);
      const QuantSpec& spec = matrix.encode.spec;
      places_.push_back({spelt[0].info.name, &matrix.codes_offset,
                         expert * rows * spec.row_bytes(first.columns)});
      places_.push_back({spelt[1].info.name, &matrix.scales_offset,
                         expert * rows * spec.grid_columns(first.columns)});
    }
    if (stack.biases.empty()) return OkStatus();
    return AddBias({.parts = stack.biases, .interleave = parts}, stack.stem + "_bias",
                   {experts, rows}, stack.biases.front().values.info->dtype, shard);
  }

  // gpt-oss as the source: each expert gets its own.
  Status AddSplitBiases(const TensorRef& codes, PlannedShard& shard) {
    for (const StoredBias& bias : plan_.stored.biases) {
      if (CodesOfBias(bias) != codes.info) continue;
      BLOCKSCALE_RETURN_IF_ERROR(AddBias({.parts = {bias}}, bias.module + ".bias", {bias.count},
                                         bias.values.info->dtype, shard));
    }
    return OkStatus();
  }

  Status AddBias(OutputBias bias, const std::string& name, std::vector<uint64_t> shape, DType dtype,
                 PlannedShard& shard) {
    plan_.biases.push_back(std::make_unique<OutputBias>(std::move(bias)));
    OutputBias& kept = *plan_.biases.back();
    shard.items.push_back({.bias = &kept});
    places_.push_back({name, &kept.offset, 0});
    return AddOutput({.name = name, .dtype = dtype, .shape = std::move(shape)}, shard);
  }

  Status AddOutput(TensorInfo info, PlannedShard& shard) {
    if (!names_.insert(info.name).second)
      return InvalidInput(
          "{}: tensor '{}' would stand twice in the output: the source has one of "
          "that name beside the matrix whose scale needs it",
          checkpoint_.folder(), info.name);
    shard.header.tensors.push_back(std::move(info));
    return OkStatus();
  }

  // Lays the shard out and notes where each of its tensors goes.
  Status Finish(PlannedShard shard) {
    if (shard.items.empty()) return OkStatus();
    BLOCKSCALE_ASSIGN_OR_RETURN(shard.header_bytes,
                                LayOutSafetensors(std::move(shard.header.tensors), &shard.header));
    std::unordered_map<std::string_view, uint64_t> offset_of;
    for (const TensorInfo& info : shard.header.tensors)
      offset_of.emplace(info.name, shard.header.data_start + info.begin);
    for (const Place& place : places_) *place.offset = offset_of.at(place.tensor) + place.extra;
    for (const auto& [item, name] : copies_) shard.items[item].offset = offset_of.at(name);
    places_.clear();
    copies_.clear();
    plan_.output_bytes += shard.header.data_bytes();
    plan_.file_bytes += shard.header.file_bytes();
    plan_.shards.push_back(std::move(shard));
    return OkStatus();
  }

  const Checkpoint& checkpoint_;
  const Targets& targets_;
  Int8Range range_;
  ConversionPlan& plan_;
  ExpertStacks stacks_;
  std::unordered_map<const TensorInfo*, const ExpertStack*> stack_of_;
  std::unordered_map<const TensorInfo*, std::vector<size_t>> of_tensor_;  // by their codes
  std::unordered_set<const TensorInfo*> known_, consumed_;
  std::unordered_map<std::string, size_t> groups_;
  std::unordered_set<std::string> names_;
  std::vector<Place> places_;
  std::vector<std::pair<size_t, std::string>> copies_;
};

}  // namespace

uint64_t ConversionPlan::tensor_count() const {
  uint64_t count = 0;
  for (const PlannedShard& shard : shards) count += shard.header.tensors.size();
  return count;
}

Result<ConversionPlan> MakeConversionPlan(const Checkpoint& checkpoint, const Recipe& recipe,
                                          Int8Range int8_range) {
  BLOCKSCALE_ASSIGN_OR_RETURN(const RecipeBook book, RecipeBook::Make(recipe));
  ConversionPlan plan;
  BLOCKSCALE_RETURN_IF_ERROR(CheckFp8Config(checkpoint));
  BLOCKSCALE_ASSIGN_OR_RETURN(plan.stored, FindStoredMatrices(checkpoint));
  BLOCKSCALE_ASSIGN_OR_RETURN(Targets targets, ChooseTargets(checkpoint, plan.stored, book));
  plan.dialect = targets.dialect;
  plan.source_shards = checkpoint.shards().size();
  plan.source_bytes = checkpoint.data_bytes();
  BLOCKSCALE_RETURN_IF_ERROR(Planner(checkpoint, targets, int8_range, &plan).Run());
  plan.warnings = std::move(targets.warnings);
  plan.int8_only = std::all_of(plan.matrices.begin(), plan.matrices.end(),
                               [](const auto& matrix) { return matrix->way == Way::kFp8ToInt8; });
  return plan;
}

}  // namespace blockscale
