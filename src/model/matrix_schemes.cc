#include "model/matrix_schemes.h"

#include <algorithm>

#include "checkpoint/stored_matrix.h"

namespace blockscale {
namespace {

bool IsSingleNumber(const TensorInfo& info) {
  return info.elements() == 1 && info.shape.size() <= 2;
}

// One number for each row of [rows, columns].
bool IsOnePerRow(const TensorInfo& scale, uint64_t rows) {
  return scale.shape == std::vector<uint64_t>{rows, 1} ||
         scale.shape == std::vector<uint64_t>{rows};
}

class Finder {
 public:
  explicit Finder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  MatrixSchemes Run() {
    AddStored();
    for (const TensorRef& tensor : checkpoint_.tensors()) {
      if (out_.scheme_of.contains(tensor.info)) continue;
      switch (tensor.info->dtype) {
        case DType::kF8E4M3:
          AddFp8(tensor);
          break;
        case DType::kI8:
          AddInt8(tensor);
          break;
        case DType::kF8E5M2:
        case DType::kF8E4M3Fnuz:
        case DType::kF8E5M2Fnuz:
          AddUnsupported(tensor);
          break;
        default:
          AddOther(tensor);
      }
    }
    // FP8 and INT8 tell their own above.
    for (Finding& finding : packed_findings_)
      if (finding.message.find(".weight_packed'") != std::string::npos ||
          finding.message.find("_blocks'") != std::string::npos)
        out_.findings.push_back(std::move(finding));
    return std::move(out_);
  }

 private:
  // What has more than one tensor beside its codes, or codes of less than a byte. Its troubles are
  // told once all matrices are known.
  void AddStored() {
    const Result<StoredMatrices> stored = FindStoredMatrices(checkpoint_, &packed_findings_);
    if (!stored.ok()) return;
    for (const StoredMatrix& matrix : stored->matrices) {
      if (matrix.spec.has_scales()) ++out_.dialects[std::string(NameOf(matrix.dialect))];
      if (!IsPacked(matrix.spec.scheme)) continue;
      std::string scheme(NameOf(matrix.spec.scheme));
      if (matrix.spec.scheme == Scheme::kInt4Group)
        scheme += fmt::format(" {}", matrix.spec.block_columns);
      for (const TensorRef& scale : {matrix.scales, matrix.global})
        if (scale && !out_.scheme_of.contains(scale.info)) out_.other_scales.push_back(scale);
      for (const TensorRef& tensor :
           {matrix.codes, matrix.scales, matrix.global, matrix.input_scale, matrix.shape})
        if (tensor) out_.scheme_of[tensor.info] = scheme;
      ++out_.other_matrices;
    }
  }

  static bool IsPacked(Scheme scheme) {
    return scheme == Scheme::kMxfp8 || scheme == Scheme::kMxfp4 || scheme == Scheme::kNvfp4 ||
           scheme == Scheme::kInt4Group;
  }

  void AddFp8(const TensorRef& weight) {
    // Scales in a packed format (NVFP4) are F8_E4M3 themselves.
    if (IsScaleOfOther(weight)) return;
    Result<Fp8Matrix> matrix = MatchFp8Matrix(checkpoint_, weight);
    if (!matrix.ok()) {
      if (std::optional<Fp8Matrix> channel = MatchChannel(weight)) {
        Name(weight, channel->scale, "fp8-channel");
        out_.fp8.push_back(*channel);
        return;
      }
      out_.findings.push_back({"scale", matrix.status().message()});
      out_.scheme_of[weight.info] = "fp8 without usable scales";
      out_.fp8_unscaled.push_back(weight);
      return;
    }
    Name(weight, matrix->scale, SchemeOfFp8(*matrix));
    out_.fp8.push_back(std::move(*matrix));
  }

  std::string SchemeOfFp8(const Fp8Matrix& matrix) const {
    BlockSize block = matrix.block;
    if (IsSingleNumber(*matrix.scale.info)) {
      // A [1, 1] grid over a matrix that one block covers is a block scale like its neighbours'.
      const auto& config = checkpoint_.config().quantization;
      const bool one_block = matrix.scale.info->shape.size() == 2 && config && config->block_size &&
                             matrix.rows <= config->block_size->rows &&
                             matrix.columns <= config->block_size->columns;
      if (!one_block) return "fp8-tensor";
      block = *config->block_size;
    }
    return fmt::format("fp8-block {}x{}", block.rows, block.columns);
  }

  // compressed-tensors' float-quantized with one scale a row.
  std::optional<Fp8Matrix> MatchChannel(const TensorRef& weight) const {
    const TensorInfo& info = *weight.info;
    if (info.shape.size() != 2 || info.elements() == 0) return std::nullopt;
    const TensorRef scale = ScaleOf(info.name);
    if (!scale || !IsOnePerRow(*scale.info, info.shape[0])) return std::nullopt;
    if (scale.info->dtype != DType::kF32 && scale.info->dtype != DType::kBF16) return std::nullopt;
    return Fp8Matrix{.weight = weight,
                     .scale = scale,
                     .rows = info.shape[0],
                     .columns = info.shape[1],
                     .block = {1, info.shape[1]},
                     .grid_rows = info.shape[0],
                     .grid_columns = 1};
  }

  void AddInt8(const TensorRef& weight) {
    const TensorInfo& info = *weight.info;
    if (info.shape.size() != 2 || !info.name.ends_with(".weight")) return AddOther(weight);
    ++out_.int8_matrices;
    const TensorRef scale = ScaleOf(info.name);
    const bool single = scale && IsSingleNumber(*scale.info);
    const bool channel = scale && IsOnePerRow(*scale.info, info.shape[0]);
    if (channel || single) {  // a single row has both
      Name(weight, scale, channel ? "int8-channel" : "int8-tensor");
      out_.int8_scales.push_back(scale);
      return;
    }
    Name(weight, scale, "int8 without usable scales");
    const std::string where = fmt::format("{}: tensor '{}'", weight.shard->file->path(), info.name);
    out_.findings.push_back(
        {"scale", scale ? fmt::format("{}: is I8 {}, its scales '{}' are {}; [{}, 1], [{}] or one "
                                      "number would be known",
                                      where, ShapeText(info.shape), scale.info->name,
                                      ShapeText(scale.info->shape), info.shape[0], info.shape[0])
                        : fmt::format("{}: is I8 {} and has no scale in the index", where,
                                      ShapeText(info.shape))});
  }

  void AddUnsupported(const TensorRef& tensor) {
    out_.findings.push_back(
        {"scale",
         fmt::format("{}: tensor '{}' is {}; only F8_E4M3 can be converted",
                     tensor.shard->file->path(), tensor.info->name, NameOf(tensor.info->dtype))});
    AddOther(tensor);
  }

  // The scale of a matrix that is not there.
  void CheckOrphan(const TensorRef& tensor) {
    const std::string_view name = tensor.info->name;
    constexpr std::string_view kEnding = ".weight_scale_inv";
    if (!name.ends_with(kEnding)) return;
    const std::string module(name.substr(0, name.size() - kEnding.size()));
    if (checkpoint_.Find(module + ".weight")) return;
    out_.findings.push_back(
        {"scale", fmt::format("{}: tensor '{}' is the scale of a matrix that is not there",
                              tensor.shard->file->path(), name)});
  }

  void AddOther(const TensorRef& weight) {
    CheckOrphan(weight);
    const TensorRef scale = ScaleOf(weight.info->name);
    if (!scale) return;
    ++out_.other_matrices;
    Name(weight, scale,
         fmt::format("{} with {} scales", PlainScheme(weight.info->dtype),
                     PlainScheme(scale.info->dtype)));
  }

  void Name(const TensorRef& weight, const TensorRef& scale, const std::string& scheme) {
    out_.scheme_of[weight.info] = scheme;
    if (scale) out_.scheme_of[scale.info] = scheme;
  }

  // Of "X.weight" or "X.weight_packed".
  TensorRef ScaleOf(std::string_view name) const {
    for (const std::string_view ending : {".weight", ".weight_packed"}) {
      if (!name.ends_with(ending)) continue;
      const std::string module(name.substr(0, name.size() - ending.size() + 1));
      for (const std::string_view suffix : kScaleSuffixes)
        if (const TensorRef scale = checkpoint_.Find(module + std::string(suffix))) return scale;
    }
    return {};
  }

  // Whether a tensor is the scale of a matrix beside it.
  bool IsScaleOfOther(const TensorRef& tensor) const {
    const std::string_view name = tensor.info->name;
    for (const std::string_view suffix : kScaleSuffixes) {
      if (!name.ends_with(suffix)) continue;
      const std::string module(name.substr(0, name.size() - suffix.size()));
      if (checkpoint_.Find(module + "weight") || checkpoint_.Find(module + "weight_packed"))
        return true;
    }
    return false;
  }

  const Checkpoint& checkpoint_;
  MatrixSchemes out_;
  std::vector<Finding> packed_findings_;
};

}  // namespace

MatrixSchemes FindMatrixSchemes(const Checkpoint& checkpoint) { return Finder(checkpoint).Run(); }

std::string PlainScheme(DType dtype) {
  std::string scheme(NameOf(dtype));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return scheme;
}

}  // namespace blockscale
