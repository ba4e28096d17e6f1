// Which quantisation method a runtime gives to a module: quantization_config read as the runtime
// reads it, and its order of questions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hf_config.h"
#include "runtime/compressed_tensors_config.h"
#include "runtime/disk_check.h"
#include "runtime/loading_contract.h"
#include "runtime/module_tree.h"
#include "runtime/target_matching.h"

namespace blockscale {

// Refers to itself inside, so it stays where it was made.
class MethodChooser {
 public:
  // What is wrong with the config as a whole goes to `findings`; nothing is then judged by it.
  MethodChooser(const HfConfig& config, Runtime runtime, GroupedFindings& findings);
  MethodChooser(const MethodChooser&) = delete;
  MethodChooser& operator=(const MethodChooser&) = delete;

  // Conflicts and schemes that no method fits become findings.
  MethodChoice Choose(const RuntimeModule& module);

  // To be called when all modules have been asked about.
  void ReportUnusedIgnores();

 private:
  void ReadConfig(const HfConfig& config);
  MethodChoice ChooseFp8(const HfConfig& config, const RuntimeModule& module) const;
  MethodChoice ChooseFor(const QuantizationGroup& group, const RuntimeModule& module);
  MethodChoice ChooseFloat(const QuantizationGroup& group, const RuntimeModule& module);
  MethodChoice ChooseInt(const QuantizationGroup& group, const RuntimeModule& module);
  MethodChoice NoMethod(const QuantizationGroup& group, const RuntimeModule& module);
  void Error(const std::string& object, const std::string& message);
  void Warn(const std::string& object, const std::string& message);

  const HfConfig& hf_config_;
  const Runtime runtime_;
  GroupedFindings& findings_;
  bool usable_ = true;  // false: a config is there and could not be read
  std::string quant_method_;
  std::vector<std::string> not_converted_;  // of fp8
  CompressedTensorsConfig config_;
  std::optional<TargetMatcher> matcher_;  // points into config_
};

}  // namespace blockscale
