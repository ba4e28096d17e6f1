#include "backends/cpu/cpu_layer.h"

#include <algorithm>
#include <mutex>

#include "backends/cpu/activate.h"
#include "backends/cpu/chunks.h"
#include "backends/cpu/expert_product.h"
#include "base/status.h"

namespace blockscale::cpu {
namespace {

// Intermediate rows in flight: at most so many slots at a time.
constexpr size_t kMostSlotsAtOnce = 8192;

constexpr std::string_view kInt8KernelName = "avx512-vnni";

struct Scratch {
  ProductScratch product;
  std::vector<const Operand*> operands;
  std::vector<float> gate, up;
};

// body(task, scratch): each part of the tasks has a scratch of its own.
template <typename Body>
void ForEachWithScratch(size_t count, const Body& body) {
  ForChunks(count, [&](size_t first, size_t last) {
    Scratch scratch;
    for (size_t i = first; i < last; ++i) body(i, scratch);
  });
}

// The slots of one local expert, as places in Batch::slots.
struct ExpertSlots {
  uint32_t local = 0;
  std::vector<size_t> places;
};

struct Batch {
  size_t first_token = 0, tokens = 0;
  std::vector<size_t> slots;         // local ones: token * top_k + slot of the call
  std::vector<ExpertSlots> experts;  // with at least one slot
  std::vector<Operand> inputs;       // [tokens]
  std::vector<float> hidden;         // [slots][intermediate]
  std::vector<Operand> operands;     // [slots]
  std::vector<float> rows;           // [slots][hidden]
};

class CpuLayer final : public PreparedLayer {
 public:
  CpuLayer(const MoeSpec& spec, PackedLayer packed, const Kernel& kernel)
      : spec_(spec), packed_(std::move(packed)), kernel_(kernel) {}

  Result<RunInfo> Run(const LayerCall& call, std::byte* output) const override {
    BLOCKSCALE_RETURN_IF_ERROR(CheckCall(spec_, call));
    RunInfo info{"cpu", std::string(TakesInt8() ? kInt8KernelName : kernel_.name), 0};
    const size_t step = std::max<size_t>(1, kMostSlotsAtOnce / spec_.top_k);
    std::unique_ptr<Batch> batch = TakeBatch();
    for (size_t first = 0; first < call.tokens(); first += step) {
      Sort(call, first, std::min(step, call.tokens() - first), batch.get());
      info.local_slots += batch->slots.size();
      PrepareInputs(call, batch.get());
      MultiplyFc1(call, batch.get());
      Requantise(call, batch.get());
      MultiplyFc2(batch.get());
      Finish(call, *batch, output);
    }
    GiveBack(std::move(batch));
    return info;
  }

  size_t bytes() const override { return packed_.bytes(); }

 private:
  // Buffers of earlier runs, so that a run touches no fresh pages; one for each run at a time.
  std::unique_ptr<Batch> TakeBatch() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Batch>();
    auto batch = std::move(idle_.back());
    idle_.pop_back();
    return batch;
  }

  void GiveBack(std::unique_ptr<Batch> batch) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(batch));
  }

  void Sort(const LayerCall& call, size_t first_token, size_t tokens, Batch* batch) const {
    batch->first_token = first_token;
    batch->tokens = tokens;
    batch->slots.clear();
    batch->experts.clear();
    std::vector<ExpertSlots> experts(spec_.local_experts());
    for (size_t slot = first_token * spec_.top_k; slot < (first_token + tokens) * spec_.top_k;
         ++slot) {
      if (!spec_.is_local(call.ids[slot])) continue;
      const uint32_t local = static_cast<uint32_t>(call.ids[slot]) - spec_.first_expert();
      experts[local].local = local;
      experts[local].places.push_back(batch->slots.size());
      batch->slots.push_back(slot);
    }
    for (ExpertSlots& expert : experts)
      if (!expert.places.empty()) batch->experts.push_back(std::move(expert));
  }

  // Whether rows go through the kernel for INT8. With recipe exact the intermediate does not.
  bool TakesInt8() const {
    const bool int8 =
        spec_.inputs == RowScheme::kInt8Token || spec_.inputs == RowScheme::kInt8Group;
    return int8 && kernel_.run_int8 != nullptr;
  }

  Operand MakeOperand(const ScaledRows& rows, size_t row) const {
    return TakesInt8() ? Int8OperandOf(rows, row, spec_.weight_spec().element)
                       : OperandOf(rows, row);
  }

  void PrepareInputs(const LayerCall& call, Batch* batch) const {
    std::vector<char> wanted(batch->tokens, 0);
    for (const size_t slot : batch->slots) wanted[slot / spec_.top_k - batch->first_token] = 1;
    batch->inputs.resize(batch->tokens);
    ForEach(batch->tokens, [&](size_t t) {
      if (wanted[t]) batch->inputs[t] = MakeOperand(*call.inputs, batch->first_token + t);
    });
  }

  void MultiplyFc1(const LayerCall& call, Batch* batch) const {
    const size_t inner = spec_.local_intermediate();
    const size_t blocks = (inner + kTileRows - 1) / kTileRows;
    batch->hidden.resize(batch->slots.size() * inner);
    ForEachWithScratch(batch->experts.size() * blocks, [&](size_t task, Scratch& scratch) {
      const ExpertSlots& expert = batch->experts[task / blocks];
      scratch.operands.clear();
      for (const size_t place : expert.places)
        scratch.operands.push_back(
            &batch->inputs[batch->slots[place] / spec_.top_k - batch->first_token]);
      Fc1Block(call, expert, task % blocks, &scratch, batch);
    });
  }

  void Fc1Block(const LayerCall& call, const ExpertSlots& expert, size_t block, Scratch* scratch,
                Batch* batch) const {
    const PackedExpert& weights = packed_.expert(expert.local);
    const size_t inner = spec_.local_intermediate();
    const bool gated = spec_.activation.gated();
    const size_t first = block * kTileRows, columns = std::min(kTileRows, inner - first);
    scratch->gate.resize(expert.places.size() * kTileRows);
    scratch->up.resize(expert.places.size() * kTileRows);
    MultiplyBlock(weights.gate, kernel_, block, scratch->operands, &scratch->product,
                  scratch->gate.data());
    if (gated)
      MultiplyBlock(weights.up, kernel_, block, scratch->operands, &scratch->product,
                    scratch->up.data());
    ActivateJob job{spec_.activation.kind, spec_.recipe, spec_.activation.at(expert.local)};
    if (weights.gate.bias != nullptr) job.gate_bias = weights.gate.bias + first;
    if (gated && weights.up.bias != nullptr) job.up_bias = weights.up.bias + first;
    float h[kTileRows];
    for (size_t j = 0; j < expert.places.size(); ++j) {
      job.slot_weight = call.weights[batch->slots[expert.places[j]]];
      Activate(job, &scratch->gate[j * kTileRows], &scratch->up[j * kTileRows], kTileRows, h);
      std::copy_n(h, columns, &batch->hidden[expert.places[j] * inner + first]);
    }
  }

  void Requantise(const LayerCall& call, Batch* batch) const {
    const size_t inner = spec_.local_intermediate();
    batch->operands.resize(batch->slots.size());
    ForEach(batch->slots.size(), [&](size_t place) {
      const float* h = &batch->hidden[place * inner];
      if (spec_.recipe == IntermediateRecipe::kExact) {
        batch->operands[place] = OperandOf(h, inner);
        return;
      }
      const ScaledRows row = QuantiseRows(spec_.inputs, call.intermediate_global, h, 1, inner);
      batch->operands[place] = MakeOperand(row, 0);
    });
  }

  void MultiplyFc2(Batch* batch) const {
    const size_t hidden = spec_.hidden, blocks = (hidden + kTileRows - 1) / kTileRows;
    batch->rows.resize(batch->slots.size() * hidden);
    ForEachWithScratch(batch->experts.size() * blocks, [&](size_t task, Scratch& scratch) {
      const ExpertSlots& expert = batch->experts[task / blocks];
      const TileMatrix& down = packed_.expert(expert.local).down;
      scratch.operands.clear();
      for (const size_t place : expert.places) scratch.operands.push_back(&batch->operands[place]);
      scratch.gate.resize(expert.places.size() * kTileRows);
      const size_t block = task % blocks, first = block * kTileRows;
      MultiplyBlock(down, kernel_, block, scratch.operands, &scratch.product, scratch.gate.data());
      if (spec_.recipe != IntermediateRecipe::kExact)
        RoundToBf16(scratch.gate.data(), scratch.gate.size());
      const bool bias = down.bias != nullptr && spec_.tp_rank == 0;
      for (size_t j = 0; j < expert.places.size(); ++j) {
        float* to = &batch->rows[expert.places[j] * hidden + first];
        for (size_t r = 0; r < std::min(kTileRows, hidden - first); ++r)
          to[r] = scratch.gate[j * kTileRows + r] + (bias ? down.bias[first + r] : 0.0f);
      }
    });
  }

  // FP32 sums in slot order, rounded once.
  void Finish(const LayerCall& call, const Batch& batch, std::byte* output) const {
    const size_t hidden = spec_.hidden;
    const bool weighed = spec_.recipe != IntermediateRecipe::kDeepGemmMega;
    std::vector<size_t> first_slot(batch.tokens + 1, 0);
    for (const size_t slot : batch.slots) ++first_slot[slot / spec_.top_k - batch.first_token + 1];
    for (size_t t = 0; t < batch.tokens; ++t) first_slot[t + 1] += first_slot[t];
    ForEach(batch.tokens, [&](size_t t) {
      std::vector<float> sum(hidden, 0.0f);
      for (size_t place = first_slot[t]; place < first_slot[t + 1]; ++place) {
        const float weight = weighed ? call.weights[batch.slots[place]] : 1.0f;
        const float* row = &batch.rows[place * hidden];
        for (size_t k = 0; k < hidden; ++k) sum[k] += weight * row[k];
      }
      StoreOutput(spec_.output, sum.data(), hidden,
                  output + (batch.first_token + t) * OutputRowBytes(spec_));
    });
  }

  MoeSpec spec_;
  PackedLayer packed_;
  Kernel kernel_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Batch>> idle_;
};

}  // namespace

std::unique_ptr<PreparedLayer> MakeCpuLayer(const MoeSpec& spec, PackedLayer packed,
                                            const Kernel& kernel) {
  return std::make_unique<CpuLayer>(spec, std::move(packed), kernel);
}

}  // namespace blockscale::cpu
