#include "convert/targets.h"

#include <algorithm>
#include <set>

#include "convert/plan.h"
#include "convert/spelling.h"
#include "model/tensor_class.h"

namespace blockscale {
namespace {

std::string Where(const StoredMatrix& matrix) {
  return fmt::format("{}: matrix '{}'", matrix.codes.shard->file->path(), matrix.module);
}

// What quant_method may say of matrices in a dialect.
std::vector<std::string_view> MethodsOf(Dialect dialect) {
  switch (dialect) {
    case Dialect::kPlain:
      return {};
    case Dialect::kDeepSeek:
      return {"fp8", "mxfp8"};
    case Dialect::kDeepSeekV4:
      return {"fp8", "mxfp8", "deepseek_v4_fp8"};
    case Dialect::kCompressedTensors:
      return {"compressed-tensors", "fp8"};
    case Dialect::kModelOpt:
      return {"modelopt", "modelopt_fp4"};
    case Dialect::kGptOss:
      return {"mxfp4"};
  }
  return {};
}

// "fmt" names the FP8 format, in several spellings of e4m3.
Status CheckFmt(const Checkpoint& checkpoint) {
  const auto& json = checkpoint.config().quantization_json();
  const auto found = json.find("fmt");
  if (found == json.end() || !found->is_string()) return OkStatus();
  const std::string fmt = found->get<std::string>();
  if (fmt.find("e4m3") != std::string::npos) return OkStatus();
  return InvalidInput(
      "{}: fmt is '{}', but the tensors are F8_E4M3; restore the config that belongs "
      "to them",
      JoinPath(checkpoint.folder(), kConfigFileName), fmt);
}

// A config that speaks of another quantisation than the tensors show belongs to another model.
Status CheckConfig(const Checkpoint& checkpoint, const StoredMatrices& stored) {
  const auto& quantization = checkpoint.config().quantization;
  const std::string config = JoinPath(checkpoint.folder(), kConfigFileName);
  std::set<Dialect> seen;
  for (const StoredMatrix& matrix : stored.matrices) {
    if (!matrix.spec.has_scales() || !seen.insert(matrix.dialect).second) continue;
    // ModelOpt may keep its own in hf_quant_config.json.
    if (!quantization && matrix.dialect == Dialect::kModelOpt) continue;
    if (!quantization)
      return InvalidInput(
          "{}: has no quantization_config, but the checkpoint holds {} matrices such as '{}'; "
          "restore the config that belongs to it",
          config, NameOf(matrix.spec.scheme), matrix.module);
    if (matrix.spec.element == Format::kE4M3) BLOCKSCALE_RETURN_IF_ERROR(CheckFmt(checkpoint));
    const auto methods = MethodsOf(matrix.dialect);
    if (std::find(methods.begin(), methods.end(), quantization->quant_method) != methods.end())
      continue;
    return InvalidInput(
        "{}: quant_method is '{}', but tensors such as those of '{}' are {} in the spelling of {} "
        "('{}'); restore the config that belongs to them",
        config, quantization->quant_method, matrix.module, NameOf(matrix.spec.scheme),
        NameOf(matrix.dialect), methods.front());
  }
  return OkStatus();
}

Status CheckTarget(const StoredMatrix& matrix, const MatrixTarget& target) {
  const QuantSpec& spec = target.spec;
  if (matrix.spec.scheme == Scheme::kNvfp4 && spec.scheme == Scheme::kMxfp4)
    return Refused(
        "{}: is NVFP4 and stays so: MXFP4 has one power of two for 32 values where NVFP4 has an "
        "E4M3 scale for 16, so every block would be rounded again; convert to bf16 or fp8 "
        "instead, or keep it",
        Where(matrix));
  if (target.rule == ScaleRule::kExactCast && matrix.spec.scheme != Scheme::kMxfp4)
    return InvalidInput("{}: is {}; scale rule exact-cast is for MXFP4 sources", Where(matrix),
                        NameOf(matrix.spec.scheme));
  const uint64_t group = spec.block_rows == 1 ? spec.block_columns : 0;
  if (group != 0 && matrix.columns % group != 0)
    return InvalidInput(
        "{}: has {} columns, not a multiple of {}, the group of {}; keep it with a recipe rule "
        "{{\"match\": ..., \"scheme\": \"keep\"}} before the others",
        Where(matrix), matrix.columns, group, NameOf(spec.scheme));
  if (spec.block_rows > 1 && spec.block_rows * matrix.columns > kMaxColumns)
    return InvalidInput("{}: has {} columns; blocks of {} rows need at most {} at once",
                        Where(matrix), matrix.columns, spec.block_rows,
                        kMaxColumns / spec.block_rows);
  if (matrix.columns > kMaxColumns)
    return InvalidInput("{}: has {} columns, more than the limit of {}", Where(matrix),
                        matrix.columns, kMaxColumns);
  return OkStatus();
}

void Warn(const StoredMatrix& matrix, TensorClass of, std::set<TensorClass>& warned,
          std::vector<std::string>& warnings) {
  if (of != TensorClass::kRouter && of != TensorClass::kEmbedding && of != TensorClass::kNorm)
    return;
  if (!warned.insert(of).second) return;
  warnings.push_back(fmt::format(
      "the recipe names {} weights such as '{}': they are small, sensitive, and runtimes expect "
      "them unquantised",
      NameOf(of), matrix.module));
}

// The usual dialect for what comes out.
Dialect UsualDialect(const StoredMatrices& stored, const Targets& targets) {
  std::set<Dialect> kept;
  bool all_fp8_block = true, any = false, all_kept = true;
  for (size_t i = 0; i < stored.matrices.size(); ++i) {
    const QuantSpec& spec = targets.of[i].spec;
    if (!spec.has_scales()) continue;
    any = true;
    all_fp8_block &= spec.scheme == Scheme::kFp8Block;
    if (spec == stored.matrices[i].spec)
      kept.insert(stored.matrices[i].dialect);
    else
      all_kept = false;
  }
  if (!any) return Dialect::kPlain;
  if (all_kept && kept.size() == 1) return *kept.begin();
  return all_fp8_block ? Dialect::kDeepSeek : Dialect::kCompressedTensors;
}

}  // namespace

Status CheckFp8Config(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  const auto fp8 = std::find_if(tensors.begin(), tensors.end(), [](const TensorRef& tensor) {
    return tensor.info->dtype == DType::kF8E4M3 && tensor.info->name.ends_with(".weight");
  });
  if (fp8 == tensors.end()) return OkStatus();
  const std::string config = JoinPath(checkpoint.folder(), kConfigFileName);
  const auto& quantization = checkpoint.config().quantization;
  if (!quantization)
    return InvalidInput(
        "{}: has no quantization_config, but tensor '{}' and maybe more are F8_E4M3; restore the "
        "config that belongs to them",
        config, fp8->info->name);
  for (const char* method : {"fp8", "mxfp8", "deepseek_v4_fp8", "compressed-tensors", "modelopt",
                             "modelopt_fp4", "mxfp4"})
    if (quantization->quant_method == method) return OkStatus();
  return InvalidInput(
      "{}: quant_method is '{}', but tensor '{}' and maybe more are F8_E4M3 ('fp8'); restore the "
      "config that belongs to them",
      config, quantization->quant_method, fp8->info->name);
}

Result<Targets> ChooseTargets(const Checkpoint& checkpoint, const StoredMatrices& stored,
                              const RecipeBook& book) {
  BLOCKSCALE_RETURN_IF_ERROR(CheckConfig(checkpoint, stored));
  Targets targets;
  std::set<TensorClass> warned;
  const bool any_quantised =
      std::any_of(stored.matrices.begin(), stored.matrices.end(),
                  [](const StoredMatrix& matrix) { return matrix.spec.has_scales(); });
  for (const StoredMatrix& matrix : stored.matrices) {
    const TensorClass of = ClassOf(matrix.module + ".weight");
    MatrixTarget target{.spec = matrix.spec};
    if (const auto wanted = book.Decide(matrix, of, any_quantised)) {
      if (wanted->named && wanted->spec.has_scales()) Warn(matrix, of, warned, targets.warnings);
      BLOCKSCALE_RETURN_IF_ERROR(CheckTarget(matrix, *wanted));
      target = *wanted;
    }
    targets.of.push_back(target);
  }
  targets.dialect = book.dialect().value_or(UsualDialect(stored, targets));
  bool any_change = false;
  for (size_t i = 0; i < stored.matrices.size(); ++i) {
    const StoredMatrix& matrix = stored.matrices[i];
    const QuantSpec& spec = targets.of[i].spec;
    const bool same =
        spec == matrix.spec && (!spec.has_scales() || matrix.dialect == targets.dialect);
    if (!same && !CanSpell(targets.dialect, spec))
      return InvalidInput(
          "{}: would be {} in a checkpoint of the dialect {}, which has no words "
          "for it; choose another --dialect or scheme",
          Where(matrix), NameOf(spec.scheme), NameOf(targets.dialect));
    targets.changes.push_back(!same);
    any_change |= !same;
  }
  if (!any_change)
    return InvalidInput(
        "{}: holds no matrix that the recipe would change; there is nothing to "
        "convert",
        checkpoint.folder());
  return targets;
}

}  // namespace blockscale
