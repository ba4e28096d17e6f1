#include "backends/cpu/cpu_backend.h"

#include <cstdlib>

#include "backends/cpu/cpu_layer.h"
#include "backends/cpu/kernel.h"
#include "base/status.h"

namespace blockscale {
namespace {

constexpr const char* kKernelVariable = "BLOCKSCALE_CPU_KERNEL";

// A kernel that was asked for runs or is refused: a comparison must not measure another one.
Status CheckKernel(const std::string& name, const MoeSpec& spec) {
  const auto format = cpu::TileFormatOf(spec.weight_spec());
  if (name.empty() || cpu::KernelNamed(name, format).run != nullptr) return OkStatus();
  std::string here;
  for (const std::string_view known : cpu::kKernelNames)
    if (cpu::KernelNamed(known, format).run != nullptr)
      here += fmt::format("{}{}", here.empty() ? "" : ", ", known);
  return InvalidInput(
      "the cpu backend's kernel '{}' is not known or not for this processor with weights of {}; "
      "there are {}: set {} to one of them, or leave it unset for the fastest",
      name, NameOf(spec.weights), here, kKernelVariable);
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(CpuOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "cpu"; }

  Status Supports(const MoeSpec& spec) const override {
    BLOCKSCALE_RETURN_IF_ERROR(ValidateMoeSpec(spec));
    if (spec.weights == Scheme::kF32 || spec.weights == Scheme::kFP16)
      return InvalidInput(
          "weights are {}; the cpu backend takes bf16 and the quantised schemes: "
          "convert with --to bf16",
          NameOf(spec.weights));
    for (const uint32_t size : {spec.hidden, spec.local_intermediate()})
      if (size % cpu::kTileColumns != 0)
        return InvalidInput(
            "a width of {} is no multiple of {}, the columns of a tile of the cpu "
            "backend; pad the weights",
            size, cpu::kTileColumns);
    if (spec.weights == Scheme::kInt4Group &&
        spec.weight_spec().block_columns % cpu::kTileColumns != 0)
      return InvalidInput(
          "weight-group={} is no multiple of {}, the columns of a tile of the cpu "
          "backend",
          spec.weight_spec().block_columns, cpu::kTileColumns);
    return CheckKernel(options_.kernel, spec);
  }

  Result<std::unique_ptr<PreparedLayer>> Prepare(const MoeSpec& spec,
                                                 const LayerWeights& weights) const override {
    BLOCKSCALE_RETURN_IF_ERROR(Supports(spec));
    const auto format = cpu::TileFormatOf(spec.weight_spec());
    const cpu::Kernel kernel = options_.kernel.empty() ? cpu::ChooseKernel(format)
                                                       : cpu::KernelNamed(options_.kernel, format);
    BLOCKSCALE_ASSIGN_OR_RETURN(cpu::PackedLayer packed, cpu::PackedLayer::Make(spec, weights));
    return cpu::MakeCpuLayer(spec, std::move(packed), kernel);
  }

  // A group's 32 products, then one addition a group.
  Accumulation accumulation(const MoeSpec&) const override { return {32, 32 + 16}; }

 private:
  CpuOptions options_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(CpuOptions options) {
  const char* asked = std::getenv(kKernelVariable);
  if (options.kernel.empty() && asked != nullptr) options.kernel = asked;
  return std::make_unique<CpuBackend>(std::move(options));
}

}  // namespace blockscale
