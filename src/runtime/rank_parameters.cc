#include "runtime/rank_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace blockscale {
namespace {

constexpr uint64_t kVocabularyPadding = 64;

uint64_t CeilDiv(uint64_t n, uint64_t d) { return n / d + (n % d != 0); }

std::string TypeText(DType dtype) {
  if (dtype == DType::kI8) return "int8";
  std::string text(NameOf(dtype));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The runtime's parameter has the method's type, whatever lies on disk; of the float types it takes
// the one that does.
DType ParameterType(const MethodChoice& method, DType on_disk) {
  const bool is_float = on_disk == DType::kBF16 || on_disk == DType::kF16 || on_disk == DType::kF32;
  const bool plain = method.scales == ScaleGrid::kNone;
  return !method.judged || (plain && is_float) ? on_disk : method.weight;
}

// Rows of a matrix that one rank holds.
uint64_t RankRows(const Checkpoint& checkpoint, const RuntimeModule& module,
                  const std::string& on_disk, uint64_t rows, uint64_t tp) {
  if (module.split_columns || module.kind == ModuleKind::kGate) return rows;
  if (module.kind == ModuleKind::kEmbedding || module.kind == ModuleKind::kLmHead)
    return PaddedVocabulary(rows) / tp;
  const bool key_value = on_disk.ends_with(".k_proj") || on_disk.ends_with(".v_proj");
  const auto heads = checkpoint.config().Number("num_key_value_heads");
  if (key_value && heads && *heads > 0 && *heads < tp) return rows / *heads;
  return rows / tp;
}

// "NAME f32 [...]" of the scales of a matrix [rows, columns]; "" when there are none. `experts` is
// the leading dimension, or "".
std::string ScaleText(const MethodChoice& method, const std::string& name,
                      const std::string& experts, uint64_t rows, uint64_t columns) {
  switch (method.scales) {
    case ScaleGrid::kNone:
      return "";
    case ScaleGrid::kPerTensor:
      return fmt::format("{} f32 [{}1]", name, experts);
    case ScaleGrid::kPerRow:
      return fmt::format("{} f32 [{}{}, 1]", name, experts, rows);
    case ScaleGrid::kPerBlock:
      return fmt::format("{} f32 [{}{}, {}]", name, experts, CeilDiv(rows, method.block.rows),
                         CeilDiv(columns, method.block.columns));
  }
  return "";
}

void AddMatrix(std::vector<std::string>& out, const MethodChoice& method, const std::string& prefix,
               DType dtype, const std::string& experts, uint64_t rows, uint64_t columns) {
  out.push_back(
      fmt::format("{}weight {} [{}{}, {}]", prefix, TypeText(dtype), experts, rows, columns));
  const std::string name = prefix + std::string(method.scale_suffix.substr(1));
  if (std::string scale = ScaleText(method, name, experts, rows, columns); !scale.empty())
    out.push_back(std::move(scale));
}

std::vector<std::string> ExpertParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                          const MethodChoice& method, uint64_t tp) {
  uint64_t experts = 0, inner = 0, hidden = 0;
  DType dtype = method.weight;
  for (const std::string& on_disk : module.on_disk) {
    const auto place = PlaceOfExpert(on_disk);
    const TensorRef weight = checkpoint.Find(on_disk + ".weight");
    if (!place || !weight) continue;
    experts = std::max(experts, place->expert + 1);
    if (place->part != ExpertPlace::Part::kGate) continue;
    inner = weight.info->shape[0] / tp;
    hidden = weight.info->shape[1];
    dtype = ParameterType(method, weight.info->dtype);
  }
  std::vector<std::string> out;
  const std::string leading = fmt::format("{}, ", experts);
  AddMatrix(out, method, "w13_", dtype, leading, 2 * inner, hidden);
  AddMatrix(out, method, "w2_", dtype, leading, hidden, inner);
  return out;
}

}  // namespace

uint64_t PaddedVocabulary(uint64_t rows) {
  return CeilDiv(rows, kVocabularyPadding) * kVocabularyPadding;
}

std::vector<std::string> RankParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                        const MethodChoice& method, uint64_t tp) {
  if (module.kind == ModuleKind::kExperts) return ExpertParameters(checkpoint, module, method, tp);
  uint64_t rows = 0, columns = 0;
  DType dtype = method.weight;
  for (const std::string& on_disk : module.on_disk) {
    const TensorRef weight = checkpoint.Find(on_disk + ".weight");
    if (!weight) continue;
    dtype = ParameterType(method, weight.info->dtype);
    columns = module.split_columns ? weight.info->shape[1] / tp : weight.info->shape[1];
    rows += RankRows(checkpoint, module, on_disk, weight.info->shape[0], tp);
  }
  std::vector<std::string> out;
  AddMatrix(out, method, "", dtype, "", rows, columns);
  return out;
}

}  // namespace blockscale
