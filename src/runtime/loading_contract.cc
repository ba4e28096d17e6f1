#include "runtime/loading_contract.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "runtime/disk_check.h"
#include "runtime/module_tree.h"
#include "runtime/target_matching.h"

namespace blockscale {
namespace {

// The method that a module gets, and what must lie on disk for it.
struct MethodChoice {
  std::string name;
  DiskScheme scheme = DiskScheme::kFloat;
};

class ContractCheck {
 public:
  ContractCheck(const Checkpoint& checkpoint, Runtime runtime, uint64_t tp)
      : checkpoint_(checkpoint), findings_(&report_.findings) {
    report_.runtime = runtime;
    report_.tp = tp;
  }

  Result<ContractReport> Run() {
    const std::vector<RuntimeModule> modules = BuildModuleTree(checkpoint_);
    if (modules.empty())
      return InvalidInput("{}: holds no matrix that a runtime would load", checkpoint_.folder());
    ChooseConfig();
    CheckParallelism();
    for (const RuntimeModule& module : modules) CheckModule(module);
    if (matcher_)
      for (const std::string& entry : matcher_->UnusedIgnores())
        Warn("ignore",
             fmt::format("'{}' matches no module; is it spelled as the runtime spells it?", entry));
    BLOCKSCALE_RETURN_IF_ERROR(CheckScales(checkpoint_, report_.runtime, &report_));
    findings_.Flush();
    return std::move(report_);
  }

 private:
  void Error(const std::string& object, const std::string& message) {
    findings_.Add(true, object, message, message);
  }
  void Warn(const std::string& object, const std::string& message) {
    findings_.Add(false, object, message, message);
  }

  // Reads quantization_config; without a usable one every module is judged as unquantised.
  void ChooseConfig() {
    const auto& quantization = checkpoint_.config().quantization;
    if (!quantization) return;
    method_ = quantization->quant_method;
    if (method_ == "fp8") {
      if (report_.runtime == Runtime::kVllmKunlun)
        Error("quantization_config",
              "quant_method 'fp8' is not supported by vLLM-Kunlun; convert to "
              "int8-channel first");
      return;
    }
    if (method_ != "compressed-tensors")
      return Error("quantization_config",
                   fmt::format("quant_method '{}' cannot be judged here; 'compressed-tensors' and "
                               "'fp8' can",
                               method_));
    Result<CompressedTensorsConfig> parsed =
        ParseCompressedTensorsConfig(checkpoint_.config().quantization_json());
    if (!parsed.ok()) return Error("quantization_config", parsed.status().message());
    config_ = std::move(*parsed);
    for (const std::string& remark : config_.remarks) Warn("quantization_config", remark);
    Result<TargetMatcher> matcher = TargetMatcher::Make(config_);
    if (!matcher.ok()) return Error("quantization_config", matcher.status().message());
    matcher_.emplace(std::move(*matcher));
  }

  void CheckParallelism() {
    const HfConfig& config = checkpoint_.config();
    const uint64_t tp = report_.tp;
    const auto must_divide = [&](const char* key) {
      const auto value = config.Number(key);
      if (value && *value % tp != 0)
        Error(key, fmt::format("{} is not a multiple of --tp {}; choose another tensor parallelism",
                               *value, tp));
    };
    must_divide("num_attention_heads");
    must_divide("intermediate_size");
    const auto kv_heads = config.Number("num_key_value_heads");
    if (kv_heads && *kv_heads > 0 && *kv_heads % tp != 0 && tp % *kv_heads != 0)
      Error("num_key_value_heads",
            fmt::format("{} neither divides nor is divided by --tp {}", *kv_heads, tp));
  }

  MethodChoice Choose(const RuntimeModule& module) {
    const bool experts = module.kind == ModuleKind::kExperts;
    const MethodChoice unquantised = {
        experts ? "UnquantizedFusedMoEMethod" : "UnquantizedLinearMethod", DiskScheme::kFloat};
    if (module.kind == ModuleKind::kGate || module.kind == ModuleKind::kEmbedding) {
      if (matcher_) {
        matcher_->NoteUnquantised(module.name);
        for (const std::string& name : module.on_disk) matcher_->NoteUnquantised(name);
      }
      return module.kind == ModuleKind::kGate
                 ? unquantised
                 : MethodChoice{"UnquantizedEmbeddingMethod", DiskScheme::kFloat};
    }
    if (method_ == "fp8")
      return module.kind == ModuleKind::kLmHead
                 ? unquantised
                 : MethodChoice{experts ? "Fp8MoEMethod" : "Fp8LinearMethod",
                                DiskScheme::kFp8Block};
    if (!matcher_) return unquantised;
    const MatchOutcome outcome =
        experts ? matcher_->MatchExperts(module.name, module.class_name)
                : matcher_->MatchLinear({module.name, module.class_name, module.parts});
    if (!outcome.conflict.empty()) findings_.Add(true, module.name, "conflict", outcome.conflict);
    if (outcome.group == nullptr) return unquantised;
    return ChooseFor(*outcome.group, module, experts);
  }

  MethodChoice ChooseFor(const QuantizationGroup& group, const RuntimeModule& module,
                         bool experts) {
    if (!IsDynamicTokenW8A8(group)) {
      findings_.Add(
          true, module.name, "scheme",
          fmt::format("group '{}' is no dynamic-token W8A8 scheme, the only one judged here",
                      group.name));
      return {"unknown", DiskScheme::kUnknown};
    }
    const bool is_float = group.weights->type == "float";
    if (is_float && experts && report_.runtime == Runtime::kVllmKunlun)
      findings_.Add(
          true, module.name, "float",
          "the scheme is FP8, but vLLM-Kunlun's MoE does not look at the type and runs it as "
          "INT8: silently wrong");
    if (is_float)
      return {experts ? "CompressedTensorsW8A8Fp8MoEMethod" : "CompressedTensorsW8A8Fp8",
              DiskScheme::kFp8Channel};
    if (experts && group.weights->strategy != "channel")
      findings_.Add(true, module.name, "strategy",
                    fmt::format("INT8 experts need weights of strategy 'channel', not '{}'",
                                group.weights->strategy));
    const char* prefix = report_.runtime == Runtime::kVllmKunlun ? "Kunlun" : "";
    return {std::string(prefix) +
                (experts ? "CompressedTensorsW8A8Int8MoEMethod" : "CompressedTensorsW8A8Int8"),
            DiskScheme::kInt8Channel};
  }

  void CheckModule(const RuntimeModule& module) {
    const MethodChoice method = Choose(module);
    CheckOnDisk(checkpoint_, module, method.name, method.scheme, findings_);
    ModuleClass& entry = ClassOf(module, method.name);
    if (entry.modules++ == 0)
      entry.parameters = RankParameters(checkpoint_, module, method.scheme, report_.tp);
  }

  ModuleClass& ClassOf(const RuntimeModule& module, const std::string& method) {
    for (ModuleClass& entry : report_.classes)
      if (entry.group == module.group && entry.method == method) return entry;
    report_.classes.push_back(
        {.group = module.group, .class_name = module.class_name, .method = method});
    return report_.classes.back();
  }

  const Checkpoint& checkpoint_;
  ContractReport report_;
  GroupedFindings findings_;
  std::string method_;
  CompressedTensorsConfig config_;
  std::optional<TargetMatcher> matcher_;
};

}  // namespace

bool ContractReport::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const ContractFinding& finding) { return finding.error; });
}

Result<ContractReport> CheckLoading(const Checkpoint& checkpoint, Runtime runtime, uint64_t tp) {
  if (tp == 0 || tp > 1024) return InvalidInput("--tp is {}, not from 1 to 1024", tp);
  return ContractCheck(checkpoint, runtime, tp).Run();
}

}  // namespace blockscale
