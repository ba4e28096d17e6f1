#include "runtime/loading_contract.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/disk_check.h"
#include "runtime/family_tensors.h"
#include "runtime/method_choice.h"
#include "runtime/module_tree.h"
#include "runtime/python_regex.h"
#include "runtime/rank_parameters.h"

namespace blockscale {
namespace {

// The vLLM under the Kunlun plugin (0.15.1) is older than the split that made RoutedExperts.
constexpr char kKunlunExpertsClass[] = "FusedMoE";

class ContractCheck {
 public:
  ContractCheck(const Checkpoint& checkpoint, Runtime runtime, uint64_t tp)
      : checkpoint_(checkpoint), findings_(&report_.findings) {
    report_.runtime = runtime;
    report_.tp = tp;
  }

  Result<ContractReport> Run() {
    BLOCKSCALE_RETURN_IF_ERROR(CheckNames());
    std::vector<RuntimeModule> modules = BuildModuleTree(checkpoint_);
    if (modules.empty())
      return InvalidInput("{}: holds no matrix that a runtime would load", checkpoint_.folder());
    for (RuntimeModule& module : modules)
      if (module.kind == ModuleKind::kExperts && report_.runtime == Runtime::kVllmKunlun)
        module.class_name = kKunlunExpertsClass;
    MethodChooser chooser(checkpoint_.config(), report_.runtime, findings_);
    CheckParallelism();
    for (const RuntimeModule& module : modules) CheckModule(module, chooser.Choose(module));
    CheckFamilyTensors(checkpoint_, findings_);
    chooser.ReportUnusedIgnores();
    BLOCKSCALE_RETURN_IF_ERROR(CheckScales(checkpoint_, report_.runtime, findings_, &report_));
    findings_.Flush();
    std::stable_partition(report_.findings.begin(), report_.findings.end(),
                          [](const ContractFinding& finding) { return finding.error; });
    return std::move(report_);
  }

 private:
  // What is longer could not be matched against the expressions of a config.
  Status CheckNames() const {
    for (const TensorRef& tensor : checkpoint_.tensors())
      if (tensor.info->name.size() > kMaxNameLength)
        return InvalidInput("{}: tensor '{}...' has a name of {} bytes, more than {}",
                            checkpoint_.folder(), tensor.info->name.substr(0, 60),
                            tensor.info->name.size(), kMaxNameLength);
    return OkStatus();
  }

  void Error(const std::string& object, const std::string& message) {
    findings_.Add(true, object, message, message);
  }

  void CheckParallelism() {
    const HfConfig& config = checkpoint_.config();
    const uint64_t tp = report_.tp;
    const auto must_divide = [&](const char* key, uint64_t value) {
      if (value % tp != 0)
        Error(key, fmt::format("{} is not a multiple of --tp {}; choose another tensor parallelism",
                               value, tp));
    };
    for (const char* key : {"num_attention_heads", "intermediate_size", "moe_intermediate_size"})
      if (const auto value = config.Number(key)) must_divide(key, *value);
    if (const auto vocabulary = config.Number("vocab_size"))
      must_divide("vocab_size, padded to a multiple of 64,", PaddedVocabulary(*vocabulary));
    const auto kv_heads = config.Number("num_key_value_heads");
    if (kv_heads && *kv_heads > 0 && *kv_heads % tp != 0 && tp % *kv_heads != 0)
      Error("num_key_value_heads",
            fmt::format("{} neither divides nor is divided by --tp {}; choose another tensor "
                        "parallelism",
                        *kv_heads, tp));
    const auto experts = config.Number("num_local_experts");
    if (experts && tp > *experts)
      Error("num_local_experts",
            fmt::format("{} is less than --tp {}, which the runtime refuses", *experts, tp));
  }

  // A block of scales that two ranks would share has no place on either.
  void CheckBlocks(const RuntimeModule& module, const MethodChoice& method) {
    if (method.scales != ScaleGrid::kPerBlock || module.kind != ModuleKind::kExperts) return;
    const HfConfig& config = checkpoint_.config();
    auto inner = config.Number("moe_intermediate_size");
    if (!inner) inner = config.Number("intermediate_size");
    if (!inner || *inner % report_.tp != 0) return;
    const uint64_t of_rank = *inner / report_.tp;
    for (const uint64_t block : {method.block.rows, method.block.columns})
      if (of_rank % block != 0)
        return Error("intermediate_size",
                     fmt::format("{} on each of {} ranks is not a multiple of the scale block {}; "
                                 "choose a smaller --tp, or convert to int8-channel, which has no "
                                 "blocks",
                                 of_rank, report_.tp, block));
  }

  void CheckModule(const RuntimeModule& module, const MethodChoice& method) {
    CheckOnDisk(checkpoint_, module, method, findings_);
    CheckBlocks(module, method);
    ModuleClass& entry = ClassOf(module, method.name);
    if (entry.modules++ == 0)
      entry.parameters = RankParameters(checkpoint_, module, method, report_.tp);
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
