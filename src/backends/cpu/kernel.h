// The products of one block of 64 matrix rows with some operand rows.
#pragma once

#include <string_view>
#include <vector>

#include "backends/cpu/operand.h"
#include "backends/cpu/tile.h"

namespace blockscale::cpu {

// One operand row for a kernel: one limb of one token.
struct KernelRow {
  const uint16_t* bf16 = nullptr;
  const float* group_scales = nullptr;  // null: none
  float* out = nullptr;                 // 64 sums, overwritten; without any row's scale
};

// A few groups of one row: what an Operand's rest is.
struct SparseRow {
  const uint16_t* bf16 = nullptr;    // [count][32]
  const uint32_t* groups = nullptr;  // [count], in order
  size_t count = 0;
  float* out = nullptr;  // 64 sums, overwritten
};

// out[r] = sum over groups g of 32 columns, in order:
//   fma(sum over the group of bf16 * code, scale of (row r, group) * group scale, acc)
// The sum within a group is exact for MXFP8 x MXFP4; else in an order of the kernel's own, the same
// for every number of rows. Scales of tile rows of their own and row scales come later.
using BlockKernel = void (*)(const TileMatrix& matrix, size_t block, const KernelRow* rows,
                             size_t count);

// The same over the row's groups alone.
using SparseKernel = void (*)(const TileMatrix& matrix, size_t block, const SparseRow& row);

// A row of INT8 codes in the order that the format's lines want (Int8Places), with what makes up
// for weights that are taken as unsigned.
struct Int8Row {
  const int8_t* codes = nullptr;
  const int32_t* starts = nullptr;  // [groups]
  const float* group_scales =
      nullptr;  // [groups]; null: whole_start counts, one rounding at the end
  int32_t whole_start = 0;
  float* out = nullptr;  // 64 sums, overwritten
};

// out[r] as above; a group's sum is an exact INT32. Null: rows of INT8 go through `run` as BF16.
using Int8Kernel = void (*)(const TileMatrix& matrix, size_t block, const Int8Row* rows,
                            size_t count);

struct Kernel {
  std::string_view name;
  BlockKernel run = nullptr;
  SparseKernel run_sparse = nullptr;
  Int8Kernel run_int8 = nullptr;
};

// Portable C++, the definition.
void RunBlockPortable(const TileMatrix& matrix, size_t block, const KernelRow* rows, size_t count);
void RunSparsePortable(const TileMatrix& matrix, size_t block, const SparseRow& row);

// All names, the fastest first.
inline constexpr std::string_view kKernelNames[] = {"avx512-bf16", "avx2", "portable"};

// The fastest for this processor and this format, or the portable one.
Kernel ChooseKernel(const TileFormat& format);
// By name; `run` is null when it is not known or cannot run here.
Kernel KernelNamed(std::string_view name, const TileFormat& format);

// out[r] for a row kept in FP32: in column order, in FP32, with all of the matrix's scales.
void RunBlockPlain(const TileMatrix& matrix, size_t block, const float* row, float* out);

// The 64 rows x 32 columns of a tile as FP32, and the scale of each row and half (of 16 columns).
void DecodeTile(const TileMatrix& matrix, size_t block, size_t group, float* codes, float* scales);

}  // namespace blockscale::cpu
