#include "runtime/disk_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <set>

namespace blockscale {
namespace {

constexpr uint64_t kMaxScaleBytes = uint64_t{64} << 20;
constexpr float kKunlunFactor = 127.0f;

// Everything that some scheme stores beside a weight. What a method has no parameter for ends its
// load in a KeyError.
constexpr std::string_view kBesideWeight[] = {
    ".weight_scale", ".weight_scale_inv",    ".weight_zero_point", ".weight_g_idx",
    ".weight_shape", ".weight_global_scale", ".input_scale",       ".input_global_scale"};

bool IsFloat(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

uint64_t CeilDiv(uint64_t n, uint64_t d) { return n / d + (n % d != 0); }

// The first that any config may say of a count of experts or of their inner width.
std::optional<uint64_t> FirstNumber(const HfConfig& config,
                                    std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto value = config.Number(key)) return value;
  return std::nullopt;
}

class ModuleDiskCheck {
 public:
  ModuleDiskCheck(const Checkpoint& checkpoint, const RuntimeModule& module,
                  const MethodChoice& method, GroupedFindings& findings)
      : checkpoint_(checkpoint), module_(module), method_(method), findings_(findings) {}

  void Run() {
    if (!method_.judged) return;
    for (const std::string& on_disk : module_.on_disk) CheckMatrix(on_disk);
    if (module_.kind == ModuleKind::kExperts) CheckExperts();
  }

 private:
  void Error(const std::string& object, const char* kind, std::string message) {
    findings_.Add(true, object, module_.group + "/" + kind, std::move(message));
  }

  void CheckMatrix(const std::string& on_disk) {
    const TensorRef weight = checkpoint_.Find(on_disk + ".weight");
    if (!weight)
      return Error(on_disk, "packed",
                   fmt::format("is stored as weight_packed, but {} loads weight: KeyError at load; "
                               "the config describes another format than the tensors have",
                               method_.name));
    const DType dtype = weight.info->dtype;
    if (method_.scales == ScaleGrid::kNone) {
      if (IsFloat(dtype))
        CheckExtras(on_disk);
      else
        Error(on_disk, "quantised-on-disk",
              fmt::format("is {} on disk, but {} loads it as plain numbers: silently wrong output; "
                          "correct targets and ignore in quantization_config",
                          NameOf(dtype), method_.name));
      return;
    }
    if (dtype != method_.weight) {
      if (!IsFloat(dtype) || !MayStayFloat(on_disk))
        Error(
            on_disk, "type",
            fmt::format("is {} on disk, but {} loads {}: the numbers would be cast one by one; put "
                        "the module into ignore or convert it",
                        NameOf(dtype), method_.name, NameOf(method_.weight)));
      return;
    }
    CheckExtras(on_disk);
    CheckScaleTensor(on_disk, *weight.info);
  }

  bool MayStayFloat(const std::string& on_disk) const {
    return std::any_of(method_.not_converted.begin(), method_.not_converted.end(),
                       [&](const std::string& entry) {
                         return on_disk.find(entry) != std::string::npos ||
                                module_.name.find(entry) != std::string::npos;
                       });
  }

  void CheckExtras(const std::string& on_disk) {
    for (const std::string_view extra : kBesideWeight) {
      if (method_.scales != ScaleGrid::kNone && extra == method_.scale_suffix) continue;
      if (checkpoint_.Find(on_disk + std::string(extra)))
        Error(on_disk, "extra",
              fmt::format("has {}, which {} has no parameter for: KeyError at load; the config and "
                          "the tensors disagree about the scheme",
                          extra.substr(1), method_.name));
    }
  }

  std::vector<std::vector<uint64_t>> AllowedScaleShapes(const TensorInfo& weight) const {
    switch (method_.scales) {
      case ScaleGrid::kNone:
        return {};
      case ScaleGrid::kPerTensor:
        return {{}, {1}};
      case ScaleGrid::kPerRow:
        return {{weight.shape[0], 1}};
      case ScaleGrid::kPerBlock:
        return {{CeilDiv(weight.shape[0], method_.block.rows),
                 CeilDiv(weight.shape[1], method_.block.columns)}};
    }
    return {};
  }

  void CheckScaleTensor(const std::string& on_disk, const TensorInfo& weight) {
    const std::string suffix(method_.scale_suffix.substr(1));
    const TensorRef scale = checkpoint_.Find(on_disk + "." + suffix);
    if (!scale)
      return Error(on_disk, "no-scale",
                   fmt::format("is {} without {}: {}, silently; convert it again",
                               NameOf(weight.dtype), suffix,
                               module_.kind == ModuleKind::kExperts
                                   ? "the buffer keeps its ones, and each value is its code"
                                   : "the buffer keeps what its memory held"));
    const DType dtype = scale.info->dtype;
    if (dtype != DType::kF32 && (method_.scale_must_be_f32 || !IsFloat(dtype)))
      Error(on_disk, "scale-type",
            fmt::format("{} is {}, the parameter is F32: the numbers are cast one by one; store "
                        "the scales as F32",
                        suffix, NameOf(dtype)));
    const auto allowed = AllowedScaleShapes(weight);
    if (std::find(allowed.begin(), allowed.end(), scale.info->shape) == allowed.end())
      Error(on_disk, "scale-shape",
            fmt::format("{} is {}, the parameter is {}: a bare assertion, or under python -O a "
                        "silent broadcast",
                        suffix, ShapeText(scale.info->shape), ShapeText(allowed.back())));
  }

  // Every expert that the config promises, with all three matrices, all of one shape: the runtime
  // narrows its buffer to a tensor that is too small and says nothing.
  void CheckExperts() {
    const HfConfig& config = checkpoint_.config();
    const auto count =
        FirstNumber(config, {"num_local_experts", "n_routed_experts", "num_experts"});
    std::set<uint64_t> seen[3];
    for (const std::string& on_disk : module_.on_disk) {
      const auto place = PlaceOfExpert(on_disk);
      if (!place || place->part == ExpertPlace::Part::kOther)
        Error(on_disk, "expert-name", "is in no place where an expert's matrices are looked for");
      else if (count && place->expert >= *count)
        Error(on_disk, "expert-number",
              fmt::format("is expert {}, the config says {} of them, from 0: KeyError at load",
                          place->expert, *count));
      else
        seen[static_cast<int>(place->part)].insert(place->expert);
      if (place && place->part != ExpertPlace::Part::kOther)
        CheckExpertShape(on_disk, place->part == ExpertPlace::Part::kDown);
    }
    constexpr const char* kParts[] = {"w1 (gate)", "w2 (down)", "w3 (up)"};
    for (int part = 0; count && part < 3; ++part)
      if (seen[part].size() != *count)
        Error(module_.name, "experts-missing",
              fmt::format("has {} of {} experts, the config says {}: the others keep what their "
                          "buffers held, silently",
                          kParts[part], seen[part].size(), *count));
  }

  void CheckExpertShape(const std::string& on_disk, bool down) {
    const HfConfig& config = checkpoint_.config();
    const auto hidden = config.Number("hidden_size");
    const auto inner = FirstNumber(config, {"moe_intermediate_size", "intermediate_size"});
    const TensorRef weight = checkpoint_.Find(on_disk + ".weight");
    if (!hidden || !inner || !weight) return;
    const std::vector<uint64_t> expected = {down ? *hidden : *inner, down ? *inner : *hidden};
    if (weight.info->shape != expected)
      Error(on_disk, "expert-shape",
            fmt::format("is {}, the config's sizes give {}; a tensor that is too small is loaded "
                        "into a part of the buffer, silently",
                        ShapeText(weight.info->shape), ShapeText(expected)));
  }

  const Checkpoint& checkpoint_;
  const RuntimeModule& module_;
  const MethodChoice& method_;
  GroupedFindings& findings_;
};

}  // namespace

void GroupedFindings::Add(bool error, const std::string& object, const std::string& kind,
                          std::string message) {
  const std::string key = (error ? "E" : "W") + kind;
  Group& group = groups_[key];
  if (group.count++ > 0) return;
  order_.push_back(key);
  group.first = {error, OneLine(object), OneLine(std::move(message))};
}

void GroupedFindings::Flush() {
  for (const std::string& key : order_) {
    Group& group = groups_[key];
    if (group.count > 1)
      group.first.message += fmt::format(" (and {} more of this kind)", group.count - 1);
    out_->push_back(std::move(group.first));
  }
  order_.clear();
  groups_.clear();
}

void CheckOnDisk(const Checkpoint& checkpoint, const RuntimeModule& module,
                 const MethodChoice& method, GroupedFindings& findings) {
  ModuleDiskCheck(checkpoint, module, method, findings).Run();
}

Status CheckScales(const Checkpoint& checkpoint, Runtime runtime, GroupedFindings& findings,
                   ContractReport* report) {
  report->smallest_scale = INFINITY;
  report->largest_scale = -INFINITY;
  for (const TensorRef& weight : checkpoint.tensors()) {
    const DType dtype = weight.info->dtype;
    if (dtype != DType::kI8 && dtype != DType::kF8E4M3) continue;
    const TensorRef scale = checkpoint.Find(weight.info->name + "_scale");
    if (!scale || scale.info->dtype != DType::kF32) continue;
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                                checkpoint.ReadAll(scale, kMaxScaleBytes));
    for (uint64_t row = 0; row < bytes.size() / sizeof(float); ++row) {
      float value = 0;
      std::memcpy(&value, bytes.data() + row * sizeof(float), sizeof(float));
      if (!std::isfinite(value) || value <= 0) {
        findings.Add(true, scale.info->name, "scale-value",
                     fmt::format("row {} is {}; scales must be positive and finite; an all-zero "
                                 "row has scale 1",
                                 row, value));
        continue;
      }
      if (runtime == Runtime::kVllmKunlun && !std::isfinite(value * kKunlunFactor))
        findings.Add(true, scale.info->name, "kunlun-overflow",
                     fmt::format("row {} is {}; Kunlun's scale * 127 overflows FP32; was it "
                                 "multiplied before it was stored?",
                                 row, value));
      ++report->scales;
      report->unit_scales += value == 1.0f;
      report->smallest_scale = std::min<double>(report->smallest_scale, value);
      report->largest_scale = std::max<double>(report->largest_scale, value);
    }
  }
  if (report->scales == 0) report->smallest_scale = report->largest_scale = 0;
  return OkStatus();
}

}  // namespace blockscale
