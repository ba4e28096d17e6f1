#include "runtime/method_choice.h"

#include <fmt/format.h>

namespace blockscale {
namespace {

MethodChoice Unquantised(const RuntimeModule& module) {
  switch (module.kind) {
    case ModuleKind::kExperts:
      return {.name = "UnquantizedFusedMoEMethod"};
    case ModuleKind::kEmbedding:
      return {.name = "UnquantizedEmbeddingMethod"};
    case ModuleKind::kLmHead:
      return {.name =
                  module.asks_config ? "UnquantizedLinearMethod" : "UnquantizedEmbeddingMethod"};
    case ModuleKind::kGate:
    case ModuleKind::kLinear:
      return {.name = "UnquantizedLinearMethod"};
  }
  return {};
}

ScaleGrid GridOf(const QuantizationArgs& weights) {
  if (weights.strategy == "tensor") return ScaleGrid::kPerTensor;
  return weights.strategy == "block" ? ScaleGrid::kPerBlock : ScaleGrid::kPerRow;
}

MethodChoice Scaled(const char* name, DType weight, const QuantizationArgs& weights) {
  MethodChoice choice{.name = name, .weight = weight, .scales = GridOf(weights)};
  if (weights.block_structure)
    choice.block = {static_cast<uint64_t>(weights.block_structure->first),
                    static_cast<uint64_t>(weights.block_structure->second)};
  return choice;
}

}  // namespace

MethodChooser::MethodChooser(const HfConfig& config, Runtime runtime, GroupedFindings& findings)
    : hf_config_(config), runtime_(runtime), findings_(findings) {
  ReadConfig(config);
}

void MethodChooser::Error(const std::string& object, const std::string& message) {
  findings_.Add(true, object, message, message);
}

void MethodChooser::Warn(const std::string& object, const std::string& message) {
  findings_.Add(false, object, message, message);
}

void MethodChooser::ReadConfig(const HfConfig& config) {
  constexpr const char* kObject = "quantization_config";
  if (!config.quantization) return;
  quant_method_ = config.quantization->quant_method;
  if (quant_method_ == "fp8") {
    const auto& json = config.quantization_json();
    if (const auto list = json.find("modules_to_not_convert"); list != json.end())
      for (const auto& entry : *list)
        if (entry.is_string()) not_converted_.push_back(entry.get<std::string>());
    if (runtime_ == Runtime::kVllmKunlun)
      Error(kObject,
            "quant_method 'fp8' is not supported by vLLM-Kunlun; convert to int8-channel first");
    return;
  }
  usable_ = false;
  if (quant_method_ != "compressed-tensors")
    return Error(kObject, fmt::format("quant_method '{}' cannot be judged here; "
                                      "'compressed-tensors' and 'fp8' can",
                                      quant_method_));
  Result<CompressedTensorsConfig> parsed = ParseCompressedTensorsConfig(config.quantization_json());
  if (!parsed.ok()) return Error(kObject, parsed.status().message());
  config_ = std::move(*parsed);
  for (const std::string& remark : config_.remarks) Warn(kObject, remark);
  Result<TargetMatcher> matcher = TargetMatcher::Make(config_);
  if (!matcher.ok()) return Error(kObject, matcher.status().message());
  matcher_.emplace(std::move(*matcher));
  usable_ = true;
}

MethodChoice MethodChooser::Choose(const RuntimeModule& module) {
  if (!module.asks_config) {
    if (matcher_) {
      matcher_->NoteUnquantised(module.name);
      for (const std::string& name : module.on_disk) matcher_->NoteUnquantised(name);
    }
    return Unquantised(module);
  }
  if (!usable_) return {.name = "unknown", .judged = false};
  if (quant_method_ == "fp8") return ChooseFp8(hf_config_, module);
  if (!matcher_) return Unquantised(module);
  const MatchOutcome outcome =
      module.kind == ModuleKind::kExperts
          ? matcher_->MatchExperts(module.name, module.class_name)
          : matcher_->MatchLinear({module.name, module.class_name, module.parts});
  if (!outcome.conflict.empty()) {
    findings_.Add(true, module.name, module.group + "/conflict", outcome.conflict);
    return {.name = "none: the runtime raises", .judged = false};
  }
  return outcome.group == nullptr ? Unquantised(module) : ChooseFor(*outcome.group, module);
}

// Block-scaled FP8 as the source has it. Without blocks there is one scale a matrix.
MethodChoice MethodChooser::ChooseFp8(const HfConfig& config, const RuntimeModule& module) const {
  if (module.kind == ModuleKind::kLmHead) return Unquantised(module);
  MethodChoice choice{
      .name = module.kind == ModuleKind::kExperts ? "Fp8MoEMethod" : "Fp8LinearMethod",
      .weight = DType::kF8E4M3,
      .scales = ScaleGrid::kPerTensor,
      .scale_must_be_f32 = false,
      .not_converted = not_converted_};
  if (config.quantization->block_size) {
    choice.scales = ScaleGrid::kPerBlock;
    choice.scale_suffix = ".weight_scale_inv";
    choice.block = *config.quantization->block_size;
  }
  return choice;
}

MethodChoice MethodChooser::NoMethod(const QuantizationGroup& group, const RuntimeModule& module) {
  std::string why = fmt::format(
      "group '{}' is neither dynamic W8A8 INT8 nor FP8, the only schemes judged here", group.name);
  if (IsDynamicTokenW8A8(group) || IsDynamicFp8W8A8(group))
    why = fmt::format(
        "under format '{}' the runtime drops input_activations, and no method is left: it raises; "
        "the format of W8A8 INT8 is 'int-quantized', of FP8 'float-quantized'",
        group.format);
  else if (group.weights && group.weights->type == "int" && !group.input_activations)
    why = fmt::format("group '{}' has no input_activations, which INT8 weights need", group.name);
  findings_.Add(true, module.name, why, why);
  return {.name = "unknown", .judged = false};
}

MethodChoice MethodChooser::ChooseFor(const QuantizationGroup& group, const RuntimeModule& module) {
  if (!IsActivationFormat(group.format)) return NoMethod(group, module);
  const bool is_fp8 = IsDynamicFp8W8A8(group);
  if (!is_fp8 && !IsDynamicTokenW8A8(group)) return NoMethod(group, module);
  const char* fitting = is_fp8 ? "float-quantized" : "int-quantized";
  if (group.format != fitting)
    Warn("quantization_config",
         fmt::format("format is '{}' where the scheme's is '{}'; vLLM goes by the scheme, "
                     "Transformers by the format",
                     group.format, fitting));
  return is_fp8 ? ChooseFloat(group, module) : ChooseInt(group, module);
}

MethodChoice MethodChooser::ChooseFloat(const QuantizationGroup& group,
                                        const RuntimeModule& module) {
  const bool experts = module.kind == ModuleKind::kExperts;
  if (runtime_ == Runtime::kVllmKunlun && experts) {
    findings_.Add(true, module.name, "kunlun-float",
                  IsDynamicTokenW8A8(group)
                      ? "the scheme is FP8, but vLLM-Kunlun's MoE does not look at the type and "
                        "runs it as INT8: silently wrong; convert to int8-channel"
                      : "the scheme is FP8, for which vLLM-Kunlun's MoE has no method; convert to "
                        "int8-channel");
    return {.name = "KunlunCompressedTensorsW8A8Int8MoEMethod", .judged = false};
  }
  if (runtime_ == Runtime::kVllmKunlun)
    Warn("quantization_config", "whether vLLM-Kunlun runs FP8 linear layers is not known here");
  MethodChoice choice =
      Scaled(experts ? "CompressedTensorsW8A8Fp8MoEMethod" : "CompressedTensorsW8A8Fp8",
             DType::kF8E4M3, *group.weights);
  choice.scale_must_be_f32 = false;
  return choice;
}

MethodChoice MethodChooser::ChooseInt(const QuantizationGroup& group, const RuntimeModule& module) {
  const bool experts = module.kind == ModuleKind::kExperts;
  const bool kunlun = runtime_ == Runtime::kVllmKunlun;
  if (group.weights->type != "int" || group.input_activations->type != "int")
    findings_.Add(true, module.name, "mixed-types",
                  fmt::format("weights are {}, activations {}: taken for INT8 all the same, since "
                              "only two floats make it FP8",
                              group.weights->type, group.input_activations->type));
  if (experts && group.weights->strategy != "channel")
    findings_.Add(true, module.name, "strategy",
                  fmt::format("INT8 experts need weights of strategy 'channel', not '{}'",
                              group.weights->strategy));
  if (experts)
    return Scaled(
        kunlun ? "KunlunCompressedTensorsW8A8Int8MoEMethod" : "CompressedTensorsW8A8Int8MoEMethod",
        DType::kI8, *group.weights);
  return Scaled(kunlun ? "CompressedTensorsW8A8Int8 (KunlunScaledMMLinearKernel)"
                       : "CompressedTensorsW8A8Int8",
                DType::kI8, *group.weights);
}

void MethodChooser::ReportUnusedIgnores() {
  if (!matcher_) return;
  for (const std::string& entry : matcher_->UnusedIgnores())
    Warn("ignore",
         fmt::format("'{}' matches no module; is it spelled as the runtime spells it?", entry));
}

}  // namespace blockscale
