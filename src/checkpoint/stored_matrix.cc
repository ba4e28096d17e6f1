#include "checkpoint/stored_matrix.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/fp8_matrix.h"

namespace blockscale {
namespace {

using Shape = std::vector<uint64_t>;

constexpr uint64_t kMxGroup = 32, kNvGroup = 16;

std::string Where(const TensorRef& tensor) {
  return fmt::format("{}: tensor '{}'", tensor.shard->file->path(), tensor.info->name);
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// A floating-point type that scales may have, as a Format.
std::optional<Format> ScaleFormat(DType dtype) {
  const std::optional<Format> format = ScaleFormatOf(dtype);
  return format == Format::kE8M0 ? std::nullopt : format;
}

bool IsE8m0(DType dtype) { return dtype == DType::kU8 || dtype == DType::kF8E8M0; }

std::optional<Scheme> PlainScheme(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Scheme::kF32;
    case DType::kBF16:
      return Scheme::kBF16;
    case DType::kF16:
      return Scheme::kFP16;
    default:
      return std::nullopt;
  }
}

QuantSpec WithScale(Scheme scheme, Format scale) {
  QuantSpec spec = SpecOf(scheme);
  spec.scale = scale;
  return spec;
}

// What compressed-tensors' config says of groups of `bits` wide weights: the one size that all its
// config groups agree on, or 0.
uint64_t ConfiguredGroupSize(const HfConfig& config, int bits) {
  if (!config.quantization) return 0;
  const auto& json = config.quantization_json();
  const auto groups = json.find("config_groups");
  if (groups == json.end() || !groups->is_object()) return 0;
  uint64_t size = 0;
  for (const auto& group : *groups) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
    const auto& weights = group["weights"];
    if (weights.value("num_bits", nlohmann::ordered_json(8)) != bits) continue;
    const auto found = weights.find("group_size");
    if (found == weights.end() || !found->is_number_unsigned()) continue;
    const uint64_t here = found->get<uint64_t>();
    if (size != 0 && here != size) return 0;
    size = here;
  }
  return size;
}

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, std::vector<Finding>* tolerate)
      : checkpoint_(checkpoint),
        tolerate_(tolerate),
        int4_group_(ConfiguredGroupSize(checkpoint.config(), 4)) {}

  Result<StoredMatrices> Run() {
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      const Status status = Add(tensor);
      if (status.ok()) continue;
      if (tolerate_ == nullptr) return status;
      tolerate_->push_back({"scale", status.message()});
    }
    return std::move(out_);
  }

 private:
  Status Add(const TensorRef& tensor) {
    const std::string_view name = tensor.info->name;
    if (name.ends_with("_blocks")) return AddStacked(tensor);
    if (name.ends_with(".weight_packed"))
      return AddPacked(tensor, ModuleOf(name, ".weight_packed"));
    if (name.ends_with(".weight")) return AddWeight(tensor, ModuleOf(name, ".weight"));
    return OkStatus();
  }

  static std::string ModuleOf(std::string_view name, std::string_view ending) {
    return std::string(name.substr(0, name.size() - ending.size()));
  }

  Status AddWeight(const TensorRef& tensor, const std::string& module) {
    const TensorInfo& info = *tensor.info;
    switch (info.dtype) {
      case DType::kF8E4M3:
        return AddFp8(tensor, module);
      case DType::kI8:
        return AddInt8(tensor, module);
      case DType::kU8:
        return AddModelOptNvfp4(tensor, module);
      default:
        break;
    }
    const std::optional<Scheme> plain = PlainScheme(info.dtype);
    if (!plain || info.shape.size() != 2 || info.elements() == 0) return OkStatus();
    Push({.module = module,
          .spec = SpecOf(*plain),
          .rows = info.shape[0],
          .columns = info.shape[1],
          .codes = tensor});
    return OkStatus();
  }

  Status AddFp8(const TensorRef& tensor, const std::string& module) {
    const TensorInfo& info = *tensor.info;
    StoredMatrix matrix{.module = module, .codes = tensor};
    if (info.shape.size() == 2 && info.elements() > 0) {
      matrix.rows = info.shape[0];
      matrix.columns = info.shape[1];
      if (const TensorRef scale = Find(module + ".weight_scale"); scale && !HasTwoScales(module)) {
        matrix.scales = scale;
        matrix.dialect = Dialect::kCompressedTensors;
        matrix.input_scale = Find(module + ".input_scale");
        if (const std::optional<QuantSpec> spec = Fp8ByRows(matrix, *scale.info)) {
          matrix.spec = *spec;
          Push(std::move(matrix));
          return OkStatus();
        }
      }
    }
    return AddFp8Blocks(tensor, std::move(matrix));
  }

  bool HasTwoScales(const std::string& module) const {
    return Find(module + ".weight_scale_inv") || Find(module + ".scale");
  }

  // MXFP8, or one scale a row; a grid of blocks is left to AddFp8Blocks.
  static std::optional<QuantSpec> Fp8ByRows(const StoredMatrix& matrix, const TensorInfo& scale) {
    const uint64_t rows = matrix.rows, columns = matrix.columns;
    if (IsE8m0(scale.dtype) && scale.shape == Shape{rows, CeilDivide(columns, kMxGroup)})
      return SpecOf(Scheme::kMxfp8);
    const std::optional<Format> format = ScaleFormat(scale.dtype);
    const bool one_a_row = scale.shape == Shape{rows, 1} || scale.shape == Shape{rows};
    if (format && one_a_row && (rows > 1 || scale.shape.size() == 2))
      return WithScale(Scheme::kFp8Channel, *format);
    return std::nullopt;
  }

  // A grid of blocks or a single number, under any of the names that a scale has.
  Status AddFp8Blocks(const TensorRef& tensor, StoredMatrix matrix) {
    BLOCKSCALE_ASSIGN_OR_RETURN(const Fp8Matrix fp8, MatchFp8Matrix(checkpoint_, tensor));
    matrix.rows = fp8.rows;
    matrix.columns = fp8.columns;
    matrix.scales = fp8.scale;
    const DType dtype = fp8.scale.info->dtype;
    const Format format = *ScaleFormatOf(dtype);
    if (fp8.scale.info->elements() == 1 && !IsOneBlock(fp8)) {
      matrix.spec = WithScale(Scheme::kFp8Tensor, format);
    } else {
      matrix.spec = WithScale(Scheme::kFp8Block, format);
      const auto& config = checkpoint_.config().quantization;
      const BlockSize block = config && config->block_size ? *config->block_size : fp8.block;
      matrix.spec.block_rows = block.rows;
      matrix.spec.block_columns = block.columns;
      // "fp8" with blocks of [1, 32] and powers of two is MXFP8 in other words.
      if (format == Format::kE8M0 && block.rows == 1 && block.columns == kMxGroup)
        matrix.spec = SpecOf(Scheme::kMxfp8);
    }
    const std::string& name = fp8.scale.info->name;
    matrix.dialect = name.ends_with(".weight_scale_inv") ? Dialect::kDeepSeek
                     : name.ends_with(".weight_scale")   ? Dialect::kCompressedTensors
                                                         : Dialect::kDeepSeekV4;
    if (matrix.input_scale && matrix.spec.scheme == Scheme::kFp8Tensor)
      matrix.dialect = Dialect::kModelOpt;  // static activations: FP8 as ModelOpt writes it
    Push(std::move(matrix));
    return OkStatus();
  }

  // A [1, 1] grid over a matrix that one block covers is a block scale like its neighbours'.
  bool IsOneBlock(const Fp8Matrix& fp8) const {
    const auto& config = checkpoint_.config().quantization;
    return fp8.scale.info->shape.size() == 2 && config && config->block_size &&
           fp8.rows <= config->block_size->rows && fp8.columns <= config->block_size->columns;
  }

  Status AddInt8(const TensorRef& tensor, const std::string& module) {
    const TensorInfo& info = *tensor.info;
    if (info.shape.size() != 2 || info.elements() == 0) return OkStatus();
    StoredMatrix matrix{
        .module = module, .rows = info.shape[0], .columns = info.shape[1], .codes = tensor};
    if (const TensorRef scale = Find(module + ".weight_scale")) {
      const std::optional<Format> format = ScaleFormat(scale.info->dtype);
      if (format &&
          (scale.info->shape == Shape{matrix.rows, 1} || scale.info->shape == Shape{matrix.rows})) {
        matrix.scales = scale;
        matrix.dialect = Dialect::kCompressedTensors;
        matrix.spec = WithScale(Scheme::kInt8Channel, *format);
        Push(std::move(matrix));
        return OkStatus();
      }
      return NoScheme(tensor, scale,
                      fmt::format("INT8 with one scale a row needs [{}, 1]", matrix.rows));
    }
    const TensorRef scale = Find(module + ".scale");
    if (!scale)
      return InvalidInput(
          "{}: is I8 {} and has no scale: neither {}.weight_scale nor {}.scale is "
          "in the index",
          Where(tensor), ShapeText(info.shape), module, module);
    matrix.columns *= 2;
    if (!IsE8m0(scale.info->dtype) ||
        scale.info->shape != Shape{matrix.rows, CeilDivide(matrix.columns, kMxGroup)})
      return NoScheme(tensor, scale,
                      fmt::format("FP4 packed in I8 needs F8_E8M0 [{}, {}]", matrix.rows,
                                  CeilDivide(matrix.columns, kMxGroup)));
    matrix.scales = scale;
    matrix.dialect = Dialect::kDeepSeekV4;
    matrix.spec = SpecOf(Scheme::kMxfp4);
    Push(std::move(matrix));
    return OkStatus();
  }

  Status NoScheme(const TensorRef& tensor, const TensorRef& scale, const std::string& needed) {
    return InvalidInput("{}: is {} {}, its scales '{}' are {} {}, which fits no scheme; {}",
                        Where(tensor), NameOf(tensor.info->dtype), ShapeText(tensor.info->shape),
                        scale.info->name, NameOf(scale.info->dtype), ShapeText(scale.info->shape),
                        needed);
  }

  // U8 that is no quantised weight (a mask, say) is nobody's business.
  Status AddModelOptNvfp4(const TensorRef& tensor, const std::string& module) {
    const TensorRef scale = Find(module + ".weight_scale");
    const TensorRef global = Find(module + ".weight_scale_2");
    if (!scale && !global) return OkStatus();
    StoredMatrix matrix{.module = module,
                        .dialect = Dialect::kModelOpt,
                        .codes = tensor,
                        .global = global,
                        .global_kind = GlobalScale::Kind::kMultiplier,
                        .input_scale = Find(module + ".input_scale")};
    return AddNvfp4(std::move(matrix), scale, ".weight_scale_2");
  }

  Status AddNvfp4(StoredMatrix matrix, const TensorRef& scale, const char* global_name) {
    const TensorRef& tensor = matrix.codes;
    if (!scale)
      return InvalidInput("{}: is packed FP4 and has no scale: {}.weight_scale is not in the index",
                          Where(tensor), matrix.module);
    if (!matrix.global)
      return InvalidInput("{}: is NVFP4 (its scales are {}), but {}{} is not in the index",
                          Where(tensor), NameOf(scale.info->dtype), matrix.module, global_name);
    if (tensor.info->shape.size() != 2) return NoScheme(tensor, scale, "a matrix was expected");
    matrix.rows = tensor.info->shape[0];
    matrix.columns = 2 * tensor.info->shape[1];
    if (scale.info->dtype != DType::kF8E4M3 ||
        scale.info->shape != Shape{matrix.rows, CeilDivide(matrix.columns, kNvGroup)})
      return NoScheme(tensor, scale,
                      fmt::format("NVFP4 needs F8_E4M3 [{}, {}]", matrix.rows,
                                  CeilDivide(matrix.columns, kNvGroup)));
    if (matrix.global.info->dtype != DType::kF32 || matrix.global.info->elements() != 1)
      return InvalidInput("{}: is {} {}; the global scale of NVFP4 is one F32",
                          Where(matrix.global), NameOf(matrix.global.info->dtype),
                          ShapeText(matrix.global.info->shape));
    matrix.scales = scale;
    matrix.spec = SpecOf(Scheme::kNvfp4);
    Push(std::move(matrix));
    return OkStatus();
  }

  // compressed-tensors: packed FP4 (U8) or INT4 (I32).
  Status AddPacked(const TensorRef& tensor, const std::string& module) {
    const TensorInfo& info = *tensor.info;
    const TensorRef scale = Find(module + ".weight_scale");
    if (!scale)
      return InvalidInput("{}: has no scale: {}.weight_scale is not in the index", Where(tensor),
                          module);
    StoredMatrix matrix{
        .module = module, .dialect = Dialect::kCompressedTensors, .codes = tensor, .scales = scale};
    if (info.shape.size() != 2 || info.elements() == 0)
      return NoScheme(tensor, scale, "a matrix was expected");
    matrix.rows = info.shape[0];
    if (info.dtype == DType::kI32) return AddInt4(std::move(matrix), scale);
    if (info.dtype != DType::kU8)
      return NoScheme(tensor, scale, "U8 (FP4) and I32 (INT4) are known");
    if (const TensorRef global = Find(module + ".weight_global_scale")) {
      matrix.global = global;
      matrix.global_kind = GlobalScale::Kind::kDivisor;
      matrix.input_scale = Find(module + ".input_global_scale");
    }
    if (matrix.global || scale.info->dtype == DType::kF8E4M3)
      return AddNvfp4(std::move(matrix), scale, ".weight_global_scale");
    matrix.columns = 2 * info.shape[1];
    const uint64_t groups = CeilDivide(matrix.columns, kMxGroup);
    if (!IsE8m0(scale.info->dtype) || scale.info->shape != Shape{matrix.rows, groups})
      return NoScheme(tensor, scale,
                      fmt::format("MXFP4 needs U8 or F8_E8M0 [{}, {}]", matrix.rows, groups));
    matrix.spec = SpecOf(Scheme::kMxfp4);
    Push(std::move(matrix));
    return OkStatus();
  }

  Status AddInt4(StoredMatrix matrix, const TensorRef& scale) {
    const TensorRef& tensor = matrix.codes;
    if (Find(matrix.module + ".weight_zero_point") || Find(matrix.module + ".weight_g_idx"))
      return InvalidInput(
          "{}: has a zero point or a group index; only symmetric INT4 in order is "
          "supported",
          Where(tensor));
    if (int4_group_ == 0)
      return InvalidInput(
          "{}: is packed INT4, but {} gives no single group_size for 4 bits, and a "
          "group size is never guessed; add it to quantization_config",
          Where(tensor), JoinPath(checkpoint_.folder(), kConfigFileName));
    matrix.columns = 8 * tensor.info->shape[1];
    const std::optional<Format> format = ScaleFormat(scale.info->dtype);
    const uint64_t groups = CeilDivide(matrix.columns, int4_group_);
    if (!format || scale.info->shape != Shape{matrix.rows, groups})
      return NoScheme(tensor, scale,
                      fmt::format("INT4 in groups of {} needs BF16, F16 or F32 [{}, {}]",
                                  int4_group_, matrix.rows, groups));
    matrix.spec = WithScale(Scheme::kInt4Group, *format);
    matrix.spec.block_columns = int4_group_;
    matrix.shape = Find(matrix.module + ".weight_shape");
    Push(std::move(matrix));
    return OkStatus();
  }

  // gpt-oss: X_blocks U8 [experts, rows, groups, 16], X_scales U8 [experts, rows, groups].
  Status AddStacked(const TensorRef& tensor) {
    const std::string stem = ModuleOf(tensor.info->name, "_blocks");
    const Shape& shape = tensor.info->shape;
    const TensorRef scales = Find(stem + "_scales");
    if (!scales || tensor.info->dtype != DType::kU8) return OkStatus();
    if (shape.size() != 4 || shape[3] != kMxGroup / 2 || tensor.info->elements() == 0 ||
        !IsE8m0(scales.info->dtype) || scales.info->shape != Shape{shape[0], shape[1], shape[2]})
      return NoScheme(tensor, scales,
                      "stacked MXFP4 needs U8 [experts, rows, groups, 16] and U8 [experts, rows, "
                      "groups]");
    const size_t dot = stem.rfind('.');
    const std::string experts = stem.substr(0, dot), projection = stem.substr(dot + 1);
    const bool fused = projection == "gate_up_proj";
    if (fused && shape[1] % 2 != 0)
      return InvalidInput("{}: has {} rows; gate and up rows alternate, so their number is even",
                          Where(tensor), shape[1]);
    const TensorRef bias = Find(stem + "_bias");
    for (uint64_t expert = 0; expert < shape[0]; ++expert) {
      for (uint64_t part = 0; part < (fused ? 2u : 1u); ++part) {
        const std::string name = !fused ? projection : part == 0 ? "gate_proj" : "up_proj";
        StoredMatrix matrix{.module = fmt::format("{}.{}.{}", experts, expert, name),
                            .dialect = Dialect::kGptOss,
                            .spec = SpecOf(Scheme::kMxfp4),
                            .rows = shape[1] / (fused ? 2 : 1),
                            .columns = shape[2] * kMxGroup,
                            .codes = tensor,
                            .scales = scales,
                            .first_row = expert * shape[1] + part,
                            .row_step = fused ? 2u : 1u};
        if (bias && bias.info->shape == Shape{shape[0], shape[1]})
          out_.biases.push_back(
              {matrix.module, bias, matrix.rows, matrix.first_row, matrix.row_step});
        Push(std::move(matrix));
      }
    }
    return OkStatus();
  }

  TensorRef Find(const std::string& name) const { return checkpoint_.Find(name); }
  void Push(StoredMatrix matrix) { out_.matrices.push_back(std::move(matrix)); }

  const Checkpoint& checkpoint_;
  std::vector<Finding>* tolerate_;
  uint64_t int4_group_;
  StoredMatrices out_;
};

}  // namespace

Result<StoredMatrices> FindStoredMatrices(const Checkpoint& checkpoint,
                                          std::vector<Finding>* tolerate) {
  return Finder(checkpoint, tolerate).Run();
}

}  // namespace blockscale
