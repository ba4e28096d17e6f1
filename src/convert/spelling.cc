#include "convert/spelling.h"

namespace blockscale {
namespace {

using Role = SpeltTensor::Role;
using Shape = std::vector<uint64_t>;

DType CodeType(const QuantSpec& spec, bool packed) {
  switch (spec.element) {
    case Format::kBF16:
      return DType::kBF16;
    case Format::kFP16:
      return DType::kF16;
    case Format::kE4M3:
      return DType::kF8E4M3;
    case Format::kInt8:
      return DType::kI8;
    case Format::kInt4:
      return DType::kI32;
    default:
      return packed ? DType::kU8 : DType::kF32;
  }
}

// E8M0 bytes are declared U8: loaders copy values, and a copy from F8_E8M0 to their byte buffers
// would convert them.
DType ScaleType(const QuantSpec& spec) {
  switch (spec.scale) {
    case Format::kBF16:
      return DType::kBF16;
    case Format::kFP16:
      return DType::kF16;
    case Format::kUE4M3:
      return DType::kF8E4M3;
    case Format::kE8M0:
      return DType::kU8;
    default:
      return DType::kF32;
  }
}

Shape CodeShape(const QuantSpec& spec, uint64_t rows, uint64_t columns) {
  if (spec.element == Format::kE2M1) return {rows, columns / 2};
  if (spec.element == Format::kInt4) return {rows, (columns + 7) / 8};
  return {rows, columns};
}

Shape ScaleShape(const QuantSpec& spec, uint64_t rows, uint64_t columns) {
  if (spec.scheme == Scheme::kFp8Tensor) return {1};
  return {spec.grid_rows(rows), spec.grid_columns(columns)};
}

bool IsPacked(const QuantSpec& spec) {
  return spec.element == Format::kE2M1 || spec.element == Format::kInt4;
}

}  // namespace

bool CanSpell(Dialect dialect, const QuantSpec& spec) {
  if (!spec.has_scales()) return true;  // plain matrices are the same everywhere
  switch (dialect) {
    case Dialect::kPlain:
      return false;
    case Dialect::kDeepSeek:
      return spec.scheme == Scheme::kFp8Block;
    case Dialect::kCompressedTensors:
      return spec.scheme != Scheme::kFp8Block || spec.scale != Format::kE8M0;
    case Dialect::kModelOpt:
      return spec.scheme == Scheme::kNvfp4;
    case Dialect::kGptOss:
    case Dialect::kDeepSeekV4:
      return spec.scheme == Scheme::kMxfp4;
  }
  return false;
}

std::vector<SpeltTensor> Spell(Dialect dialect, const std::string& module, const QuantSpec& spec,
                               uint64_t rows, uint64_t columns) {
  const bool packed = IsPacked(spec) && dialect == Dialect::kCompressedTensors;
  std::vector<SpeltTensor> tensors = {{Role::kCodes,
                                       {.name = module + (packed ? ".weight_packed" : ".weight"),
                                        .dtype = CodeType(spec, IsPacked(spec)),
                                        .shape = CodeShape(spec, rows, columns)}}};
  if (!spec.has_scales()) return tensors;
  DType scale_type = ScaleType(spec);
  if (dialect == Dialect::kDeepSeek && spec.scale == Format::kE8M0) scale_type = DType::kF8E8M0;
  tensors.push_back(
      {Role::kScales,
       {.name = module + (dialect == Dialect::kDeepSeek ? ".weight_scale_inv" : ".weight_scale"),
        .dtype = scale_type,
        .shape = ScaleShape(spec, rows, columns)}});
  if (spec.has_global()) {
    const bool modelopt = dialect == Dialect::kModelOpt;
    tensors.push_back({Role::kGlobal,
                       {.name = module + (modelopt ? ".weight_scale_2" : ".weight_global_scale"),
                        .dtype = DType::kF32,
                        .shape = modelopt ? Shape{} : Shape{1}}});
  }
  if (spec.scheme == Scheme::kInt4Group)
    tensors.push_back(
        {Role::kShape, {.name = module + ".weight_shape", .dtype = DType::kI64, .shape = {2}}});
  return tensors;
}

std::vector<SpeltTensor> SpellStacked(const std::string& stem, uint64_t experts, uint64_t rows,
                                      uint64_t columns) {
  return {
      {Role::kCodes,
       {.name = stem + "_blocks", .dtype = DType::kU8, .shape = {experts, rows, columns / 32, 16}}},
      {Role::kScales,
       {.name = stem + "_scales", .dtype = DType::kU8, .shape = {experts, rows, columns / 32}}}};
}

GlobalScale::Kind GlobalKindOf(Dialect dialect) {
  return dialect == Dialect::kModelOpt ? GlobalScale::Kind::kMultiplier
                                       : GlobalScale::Kind::kDivisor;
}

std::string CompressedTensorsFormat(Scheme scheme) {
  switch (scheme) {
    case Scheme::kInt8Channel:
      return "int-quantized";
    case Scheme::kFp8Block:
    case Scheme::kFp8Channel:
    case Scheme::kFp8Tensor:
      return "float-quantized";
    case Scheme::kMxfp8:
      return "mxfp8-quantized";
    case Scheme::kMxfp4:
      return "mxfp4-pack-quantized";
    case Scheme::kNvfp4:
      return "nvfp4-pack-quantized";
    case Scheme::kInt4Group:
      return "pack-quantized";
    case Scheme::kF32:
    case Scheme::kBF16:
    case Scheme::kFP16:
      return "dense";
  }
  return "dense";
}

}  // namespace blockscale
