// The conditions of other projects' kernels, one by one (docs/external-kernels.md).

#include "moe/external_kernels.h"

#include <gtest/gtest.h>

namespace blockscale {
namespace {

std::string Says(std::string_view kernel, Device device, std::string_view text) {
  const auto spec = ParseMoeSpec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  for (const ExternalKernel& one : ExternalKernels())
    if (one.name == kernel) return one.supports(*spec, device).message();
  return "no such kernel";
}

struct Condition {
  const char* kernel;
  Device device;
  const char* layer;
  const char* says;  // "" for: it runs
};

TEST(ExternalKernels, Conditions) {
  const Condition conditions[] = {
      {"flashinfer-cutlass", Device::kSm120, "hidden=192",
       "hidden is 192, no multiple of 128; pad the weights"},
      {"flashinfer-cutlass", Device::kSm100, "weights=mxfp8,inputs=mxfp8,hidden=192", ""},
      {"flashinfer-cutlass", Device::kSm120, "weights=mxfp8,inputs=mxfp8",
       "MXFP8 x MXFP8 runs on sm100, not on sm120"},
      {"flashinfer-cutlass", Device::kSm90, "weights=mxfp4,inputs=bf16", ""},
      {"flashinfer-cutlass", Device::kSm100, "minimax-m2",
       "FP8 in blocks runs on sm90, not on sm100"},
      {"flashinfer-cutlass", Device::kSm80, "weights=bf16,inputs=bf16", ""},
      {"trtllm-gen", Device::kSm103, "gpt-oss-20b",
       "hidden is 2880, no multiple of 128; pad the weights"},
      {"trtllm-gen", Device::kSm103, "activation=geglu",
       "activation is geglu; it has swiglu and situ"},
      {"deepgemm-mega", Device::kSm100, "recipe=deepgemm-mega", ""},
      {"deepgemm-mega", Device::kSm100, "recipe=deepgemm-mega,tp=2",
       "tp is 2; it has experts in parallel only"},
      {"deepgemm-mega", Device::kSm100, "recipe=exact",
       "recipe is exact; it rounds as deepgemm-mega does"},
      {"triton-kernels", Device::kSm90, "gpt-oss-20b,inputs=bf16", ""},
      {"marlin", Device::kSm89, "weights=int4-group,inputs=bf16", ""},
      {"marlin", Device::kSm89, "weights=bf16,inputs=bf16",
       "takes mxfp4, nvfp4, int4-group, fp8-block and fp8-channel weights; the layer is bf16 x "
       "bf16"},
      {"marlin", Device::kSm90, "activation=silu",
       "activation is silu; its fused path takes [gate; up]"},
      {"kunlun", Device::kKunlunP800, "weights=int8-channel,inputs=int8-token,activation=situ",
       "activation is situ; it has swiglu"},
  };
  for (const Condition& c : conditions)
    EXPECT_EQ(Says(c.kernel, c.device, c.layer), c.says) << c.kernel << " " << c.layer;
}

}  // namespace
}  // namespace blockscale
