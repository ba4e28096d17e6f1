#include "runtime/disk_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

namespace blockscale {
namespace {

constexpr uint64_t kMaxScaleBytes = uint64_t{64} << 20;
constexpr float kKunlunFactor = 127.0f;

bool IsFloat(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

bool IsScaleOf(const TensorInfo& scale, uint64_t rows) {
  return scale.shape == std::vector<uint64_t>{rows, 1};
}

// Which of an expert's three matrices a module on disk is, and of which expert.
struct ExpertPlace {
  uint64_t expert = 0;
  enum class Part { kGate, kDown, kUp, kOther } part = Part::kOther;
};

std::optional<ExpertPlace> PlaceOfExpert(const std::string& on_disk) {
  const size_t at = on_disk.find(".experts.");
  const size_t dot = on_disk.find('.', at + 9);
  if (at == std::string::npos || dot == std::string::npos) return std::nullopt;
  ExpertPlace place;
  const auto [end, error] =
      std::from_chars(on_disk.data() + at + 9, on_disk.data() + dot, place.expert);
  if (error != std::errc() || end != on_disk.data() + dot) return std::nullopt;
  const std::string part = on_disk.substr(dot + 1);
  if (part == "w1" || part == "gate_proj") place.part = ExpertPlace::Part::kGate;
  if (part == "w2" || part == "down_proj") place.part = ExpertPlace::Part::kDown;
  if (part == "w3" || part == "up_proj") place.part = ExpertPlace::Part::kUp;
  return place;
}

class ModuleDiskCheck {
 public:
  ModuleDiskCheck(const Checkpoint& checkpoint, const RuntimeModule& module,
                  const std::string& method, DiskScheme scheme, GroupedFindings& findings)
      : checkpoint_(checkpoint),
        module_(module),
        method_(method),
        scheme_(scheme),
        findings_(findings) {}

  void Run() {
    if (scheme_ == DiskScheme::kUnknown) return;
    for (const std::string& on_disk : module_.on_disk) CheckMatrix(on_disk);
    if (module_.kind == ModuleKind::kExperts) CheckExperts();
  }

 private:
  void Error(const std::string& object, const char* kind, std::string message) {
    findings_.Add(true, object, module_.group + "/" + kind, std::move(message));
  }

  void CheckMatrix(const std::string& on_disk) {
    const TensorInfo& weight = *checkpoint_.Find(on_disk + ".weight").info;
    switch (scheme_) {
      case DiskScheme::kFloat:
        if (!IsFloat(weight.dtype))
          Error(
              on_disk, "quantised-on-disk",
              fmt::format("is {} on disk, but {} loads it as plain numbers: silently wrong output; "
                          "correct targets and ignore in quantization_config",
                          NameOf(weight.dtype), method_));
        return;
      case DiskScheme::kInt8Channel:
        return CheckScaled(on_disk, weight, DType::kI8);
      case DiskScheme::kFp8Channel:
        return CheckScaled(on_disk, weight, DType::kF8E4M3);
      case DiskScheme::kFp8Block:
        return CheckFp8Block(on_disk, weight);
      case DiskScheme::kUnknown:
        return;
    }
  }

  void CheckFp8Block(const std::string& on_disk, const TensorInfo& weight) {
    if (weight.dtype != DType::kF8E4M3) {
      // What the config lists as not converted is float, and rightly so.
      if (!IsFloat(weight.dtype))
        Error(on_disk, "type",
              fmt::format("is {}, but {} loads F8_E4M3", NameOf(weight.dtype), method_));
      return;
    }
    if (!checkpoint_.Find(on_disk + ".weight_scale_inv"))
      Error(on_disk, "no-scale", "is F8_E4M3 without weight_scale_inv");
  }

  void CheckScaled(const std::string& on_disk, const TensorInfo& weight, DType expected) {
    if (weight.dtype != expected) {
      Error(on_disk, "type",
            fmt::format("is {} on disk, but {} loads {}; put the module into ignore or convert it",
                        NameOf(weight.dtype), method_, NameOf(expected)));
      return;
    }
    const TensorRef scale = checkpoint_.Find(on_disk + ".weight_scale");
    if (!scale)
      return Error(
          on_disk, "no-scale",
          "has no weight_scale: the buffer keeps its ones, and every value is loaded as its "
          "code, silently");
    if (scale.info->dtype != DType::kF32)
      Error(on_disk, "scale-type",
            fmt::format("weight_scale is {}, the parameter is F32", NameOf(scale.info->dtype)));
    if (!IsScaleOf(*scale.info, weight.shape[0]))
      Error(on_disk, "scale-shape",
            fmt::format("weight_scale is {}, the parameter is [{}, 1]: a bare assertion, or under "
                        "python -O a silent broadcast",
                        ShapeText(scale.info->shape), weight.shape[0]));
    for (const char* extra : {".weight_zero_point", ".weight_scale_inv", ".weight_g_idx"})
      if (checkpoint_.Find(on_disk + extra))
        Error(on_disk, "extra",
              fmt::format("has {}, which {} has no parameter for: KeyError at load", extra + 1,
                          method_));
  }

  // Every expert that the config promises, with all three matrices, all of one shape: the runtime
  // narrows its buffer to a tensor that is too small and says nothing.
  void CheckExperts() {
    const HfConfig& config = checkpoint_.config();
    const auto hidden = config.Number("hidden_size");
    auto inner = config.Number("moe_intermediate_size");
    if (!inner) inner = config.Number("intermediate_size");
    std::set<uint64_t> seen[3];
    for (const std::string& on_disk : module_.on_disk) {
      const auto place = PlaceOfExpert(on_disk);
      if (!place || place->part == ExpertPlace::Part::kOther) {
        Error(on_disk, "expert-name", "is in no place where an expert's matrices are looked for");
        continue;
      }
      seen[static_cast<int>(place->part)].insert(place->expert);
      if (!hidden || !inner) continue;
      const bool down = place->part == ExpertPlace::Part::kDown;
      const std::vector<uint64_t> expected = {down ? *hidden : *inner, down ? *inner : *hidden};
      const TensorInfo& weight = *checkpoint_.Find(on_disk + ".weight").info;
      if (weight.shape != expected)
        Error(on_disk, "expert-shape",
              fmt::format("is {}, the config's sizes give {}; a tensor that is too small is loaded "
                          "into a part of the buffer, silently",
                          ShapeText(weight.shape), ShapeText(expected)));
    }
    auto count = config.Number("num_local_experts");
    if (!count) count = config.Number("n_routed_experts");
    if (!count) count = config.Number("num_experts");
    if (!count) return;
    constexpr const char* kParts[] = {"w1 (gate)", "w2 (down)", "w3 (up)"};
    for (int part = 0; part < 3; ++part)
      if (seen[part].size() != *count)
        Error(module_.name, "experts-missing",
              fmt::format("has {} of {} experts, the config says {}: the others keep what their "
                          "buffers held",
                          kParts[part], seen[part].size(), *count));
  }

  const Checkpoint& checkpoint_;
  const RuntimeModule& module_;
  const std::string& method_;
  DiskScheme scheme_;
  GroupedFindings& findings_;
};

std::string TypeText(DType dtype) {
  std::string text(NameOf(dtype));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return dtype == DType::kI8 ? "int8" : text;
}

// The rows of a matrix that one rank holds; key-value heads are replicated when there are fewer of
// them than ranks.
uint64_t RankRows(const Checkpoint& checkpoint, const std::string& on_disk, uint64_t rows,
                  uint64_t tp) {
  const bool key_value = on_disk.ends_with(".k_proj") || on_disk.ends_with(".v_proj");
  const auto heads = checkpoint.config().Number("num_key_value_heads");
  if (key_value && heads && *heads > 0 && *heads < tp) return rows / *heads;
  return rows / tp;
}

std::vector<std::string> ExpertParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                          DiskScheme scheme, uint64_t tp) {
  uint64_t experts = 0, inner = 0, hidden = 0;
  DType dtype = DType::kI8;
  for (const std::string& on_disk : module.on_disk) {
    const auto place = PlaceOfExpert(on_disk);
    if (!place) continue;
    experts = std::max(experts, place->expert + 1);
    const TensorInfo& weight = *checkpoint.Find(on_disk + ".weight").info;
    if (place->part != ExpertPlace::Part::kGate) continue;
    inner = weight.shape[0] / tp;
    hidden = weight.shape[1];
    dtype = weight.dtype;
  }
  std::vector<std::string> out = {
      fmt::format("w13_weight {} [{}, {}, {}]", TypeText(dtype), experts, 2 * inner, hidden),
      fmt::format("w2_weight {} [{}, {}, {}]", TypeText(dtype), experts, hidden, inner)};
  if (scheme == DiskScheme::kInt8Channel || scheme == DiskScheme::kFp8Channel) {
    out.push_back(fmt::format("w13_weight_scale f32 [{}, {}, 1]", experts, 2 * inner));
    out.push_back(fmt::format("w2_weight_scale f32 [{}, {}, 1]", experts, hidden));
  }
  return out;
}

}  // namespace

void GroupedFindings::Add(bool error, const std::string& object, const std::string& kind,
                          std::string message) {
  const std::string key = (error ? "E" : "W") + kind;
  Group& group = groups_[key];
  if (group.count++ > 0) return;
  order_.push_back(key);
  group.first = {error, object, std::move(message)};
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
                 const std::string& method, DiskScheme scheme, GroupedFindings& findings) {
  ModuleDiskCheck(checkpoint, module, method, scheme, findings).Run();
}

std::vector<std::string> RankParameters(const Checkpoint& checkpoint, const RuntimeModule& module,
                                        DiskScheme scheme, uint64_t tp) {
  if (module.kind == ModuleKind::kExperts) return ExpertParameters(checkpoint, module, scheme, tp);
  uint64_t rows = 0, columns = 0;
  DType dtype = DType::kI8;
  for (const std::string& on_disk : module.on_disk) {
    const TensorInfo& weight = *checkpoint.Find(on_disk + ".weight").info;
    dtype = weight.dtype;
    const bool split = module.kind != ModuleKind::kGate;
    columns = module.split_columns ? weight.shape[1] / tp : weight.shape[1];
    rows += module.split_columns || !split ? weight.shape[0]
                                           : RankRows(checkpoint, on_disk, weight.shape[0], tp);
  }
  std::vector<std::string> out = {
      fmt::format("weight {} [{}, {}]", TypeText(dtype), rows, columns)};
  if (scheme == DiskScheme::kInt8Channel || scheme == DiskScheme::kFp8Channel)
    out.push_back(fmt::format("weight_scale f32 [{}, 1]", rows));
  return out;
}

Status CheckScales(const Checkpoint& checkpoint, Runtime runtime, ContractReport* report) {
  GroupedFindings findings(&report->findings);
  report->smallest_scale = INFINITY;
  report->largest_scale = -INFINITY;
  for (const TensorRef& weight : checkpoint.tensors()) {
    if (weight.info->dtype != DType::kI8) continue;
    const TensorRef scale = checkpoint.Find(weight.info->name + "_scale");
    if (!scale || scale.info->dtype != DType::kF32) continue;
    BLOCKSCALE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                                checkpoint.ReadAll(scale, kMaxScaleBytes));
    for (uint64_t row = 0; row < bytes.size() / sizeof(float); ++row) {
      float value = 0;
      std::memcpy(&value, bytes.data() + row * sizeof(float), sizeof(float));
      if (!std::isfinite(value) || value <= 0) {
        findings.Add(true, scale.info->name, "scale-value",
                     fmt::format("row {} is {}; scales must be positive and finite", row, value));
        continue;
      }
      if (runtime == Runtime::kVllmKunlun && !std::isfinite(value * kKunlunFactor))
        findings.Add(true, scale.info->name, "kunlun-overflow",
                     fmt::format("row {} is {}; Kunlun's scale * 127 overflows FP32", row, value));
      ++report->scales;
      report->smallest_scale = std::min<double>(report->smallest_scale, value);
      report->largest_scale = std::max<double>(report->largest_scale, value);
    }
  }
  findings.Flush();
  if (report->scales == 0) report->smallest_scale = report->largest_scale = 0;
  return OkStatus();
}

}  // namespace blockscale
