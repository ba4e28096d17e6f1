#include "moe/external_kernels.h"

#include <initializer_list>
#include <string>

#include "base/status.h"

namespace blockscale {
namespace {

bool OneOf(Device device, std::initializer_list<Device> devices) {
  for (const Device one : devices)
    if (one == device) return true;
  return false;
}

Status WrongChip(std::string_view what, Device device, std::string_view chips) {
  return Refused("{} runs on {}, not on {}", what, chips, NameOf(device));
}

Status Formats(const MoeSpec& spec, std::string_view takes) {
  return Refused("takes {}; the layer is {} x {}", takes, NameOf(spec.inputs),
                 NameOf(spec.weights));
}

Status Multiples(const MoeSpec& spec, uint32_t hidden, uint32_t inner) {
  if (spec.hidden % hidden != 0)
    return Refused("hidden is {}, no multiple of {}; pad the weights", spec.hidden, hidden);
  if (spec.local_intermediate() % inner != 0)
    return Refused("intermediate a rank is {}, no multiple of {}; pad the weights",
                   spec.local_intermediate(), inner);
  return OkStatus();
}

bool PlainSwiGlu(const MoeSpec& spec) {
  return spec.activation.kind == ActivationKind::kSwiGlu &&
         spec.activation.parameters[0] == PerExpert(1) &&
         spec.activation.parameters[1] == PerExpert(0);
}

Status FlashInferCutlass(const MoeSpec& spec, Device device) {
  const bool blackwell = OneOf(device, {Device::kSm100, Device::kSm103, Device::kSm120});
  const bool nvidia = blackwell || OneOf(device, {Device::kSm80, Device::kSm89, Device::kSm90});
  if (!nvidia) return WrongChip("it", device, "sm80 and later");
  if (spec.recipe == IntermediateRecipe::kDeepGemmMega)
    return Refused("recipe is deepgemm-mega; it rounds as flashinfer-cutlass does");
  const bool mx = spec.inputs == RowScheme::kMxfp8;
  if (spec.weights == Scheme::kMxfp4 && mx) {
    if (!blackwell) return WrongChip("MXFP8 x MXFP4", device, "sm100, sm103 and sm120");
    return Multiples(spec, 128, 128);
  }
  if (spec.weights == Scheme::kMxfp8 && mx) {
    if (device != Device::kSm100) return WrongChip("MXFP8 x MXFP8", device, "sm100");
    return Multiples(spec, 64, 64);
  }
  if (spec.weights == Scheme::kNvfp4 && spec.inputs == RowScheme::kNvfp4)
    return blackwell ? Multiples(spec, 32, 32)
                     : WrongChip("NVFP4", device, "sm100, sm103 and sm120");
  if (spec.weights == Scheme::kMxfp4 && spec.inputs == RowScheme::kBf16)
    return device == Device::kSm90 ? Multiples(spec, 128, 128)
                                   : WrongChip("BF16 x MXFP4", device, "sm90");
  if (spec.weights == Scheme::kFp8Block && spec.inputs == RowScheme::kFp8Token128)
    return device == Device::kSm90 ? Multiples(spec, 128, 128)
                                   : WrongChip("FP8 in blocks", device, "sm90");
  if (spec.weights == Scheme::kBF16 && spec.inputs == RowScheme::kBf16)
    return Multiples(spec, 8, 8);
  return Formats(spec,
                 "mxfp8 x mxfp4, mxfp8 x mxfp8, nvfp4 x nvfp4, bf16 x mxfp4, fp8-token-128 x "
                 "fp8-block and bf16 x bf16");
}

std::string FlashInferCutlassNote(const MoeSpec& spec, Device device) {
  std::string note;
  if (spec.activation.kind == ActivationKind::kSitu)
    note =
        "SiTU needs FlashInfer of 2026-08-21 or later (#4460); earlier ones read the enum value 10 "
        "as InvalidType";
  if (spec.activation.kind == ActivationKind::kSitu && device == Device::kSm120)
    note += "; SGLang does not choose it by itself for Kimi-K3 on sm120";
  return note;
}

Status TrtllmGen(const MoeSpec& spec, Device device) {
  if (!OneOf(device, {Device::kSm100, Device::kSm103}))
    return WrongChip("it", device, "sm100 and sm103");
  const bool mx = spec.weights == Scheme::kMxfp4 && spec.inputs == RowScheme::kMxfp8;
  const bool nv = spec.weights == Scheme::kNvfp4 && spec.inputs == RowScheme::kNvfp4;
  if (!mx && !nv) return Formats(spec, "mxfp8 x mxfp4 and nvfp4 x nvfp4");
  if (spec.activation.kind != ActivationKind::kSwiGlu &&
      spec.activation.kind != ActivationKind::kSitu)
    return Refused("activation is {}; it has swiglu and situ", NameOf(spec.activation.kind));
  return Multiples(spec, 128, 128);
}

std::string TrtllmGenNote(const MoeSpec& spec, Device) {
  if (spec.activation.kind != ActivationKind::kSitu) return "";
  return "SiTU's betas are gemm1_alpha and gemm1_beta, and 1.0 where none is given (#4180)";
}

Status DeepGemmMega(const MoeSpec& spec, Device device) {
  if (!OneOf(device, {Device::kSm100, Device::kSm103}))
    return WrongChip("it", device, "sm100 and sm103");
  const bool mx = spec.weights == Scheme::kMxfp4 && spec.inputs == RowScheme::kMxfp8;
  const bool nv = spec.weights == Scheme::kNvfp4 && spec.inputs == RowScheme::kNvfp4;
  if (!mx && !nv) return Formats(spec, "mxfp8 x mxfp4 and, since #409, nvfp4 x nvfp4");
  if (!PlainSwiGlu(spec))
    return Refused("activation is {}; it has swiglu with alpha=1, beta=0 and a limit",
                   ToString(spec.activation));
  if (spec.recipe != IntermediateRecipe::kDeepGemmMega)
    return Refused("recipe is {}; it rounds as deepgemm-mega does", NameOf(spec.recipe));
  if (spec.tp_size != 1) return Refused("tp is {}; it has experts in parallel only", spec.tp_size);
  return nv ? Multiples(spec, 512, 512) : Multiples(spec, 256, 128);
}

Status Marlin(const MoeSpec& spec, Device device) {
  if (!OneOf(device, {Device::kSm80, Device::kSm89, Device::kSm90, Device::kSm100, Device::kSm103,
                      Device::kSm120}))
    return WrongChip("it", device, "sm80 and later");
  switch (spec.weights) {
    case Scheme::kMxfp4:
    case Scheme::kNvfp4:
    case Scheme::kInt4Group:
    case Scheme::kFp8Block:
    case Scheme::kFp8Channel:
      break;
    default:
      return Formats(spec, "mxfp4, nvfp4, int4-group, fp8-block and fp8-channel weights");
  }
  if (!spec.activation.gated())
    return Refused("activation is {}; its fused path takes [gate; up]",
                   NameOf(spec.activation.kind));
  return Multiples(spec, 256, 128);
}

std::string MarlinNote(const MoeSpec& spec, Device) {
  std::string note = "the fallback: activations stay BF16";
  if (spec.inputs != RowScheme::kBf16)
    note += fmt::format(", so its numbers are not those of inputs={}", NameOf(spec.inputs));
  return note;
}

Status TritonKernels(const MoeSpec& spec, Device device) {
  if (!OneOf(device, {Device::kSm90, Device::kSm100, Device::kSm103}))
    return WrongChip("it", device, "sm90, sm100 and sm103");
  if (spec.weights != Scheme::kMxfp4 || spec.inputs != RowScheme::kBf16)
    return Formats(spec, "bf16 x mxfp4");
  if (spec.activation.kind != ActivationKind::kSwiGlu)
    return Refused("activation is {}; it fuses swiglu alone", NameOf(spec.activation.kind));
  return Multiples(spec, 64, 64);
}

Status Kunlun(const MoeSpec& spec, Device device) {
  if (device != Device::kKunlunP800) return WrongChip("it", device, "kunlun-p800");
  if (spec.weights != Scheme::kInt8Channel || spec.inputs != RowScheme::kInt8Token)
    return Refused(
        "takes int8-token x int8-channel; the layer is {} x {}: convert with --to "
        "int8-channel",
        NameOf(spec.inputs), NameOf(spec.weights));
  if (!PlainSwiGlu(spec))
    return Refused("activation is {}; it has swiglu", ToString(spec.activation));
  return OkStatus();
}

std::string NoNote(const MoeSpec&, Device) { return ""; }

constexpr ExternalKernel kKernels[] = {
    {"flashinfer-cutlass", "FlashInfer 0.6.18 (fb28d724)",
     "[up; gate], scales 128x4, padded to 128", FlashInferCutlass, FlashInferCutlassNote},
    {"trtllm-gen", "FlashInfer 0.6.18 (fb28d724)",
     "up and gate rows in pairs, shuffled for the epilogue", TrtllmGen, TrtllmGenNote},
    {"deepgemm-mega", "DeepGEMM of August 2026", "gate and up by 8 rows, scales K-major",
     DeepGemmMega, NoNote},
    {"triton-kernels", "SGLang of 2026-08-16", "interleaved rows, padded to 64", TritonKernels,
     NoNote},
    {"kunlun", "vLLM-Kunlun", "[gate; up], one FP32 scale a row", Kunlun, NoNote},
    {"marlin", "SGLang of 2026-08-16", "[gate; up], 16 x 64 tiles, hidden padded to 256", Marlin,
     MarlinNote},
};

}  // namespace

std::span<const ExternalKernel> ExternalKernels() { return kKernels; }

}  // namespace blockscale
