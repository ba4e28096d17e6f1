// A program of somebody else's: converts one row with the installed library.

#include <blockscale/convert.h>
#include <blockscale/fp8_to_int8.h>
#include <blockscale/verify.h>
#include <blockscale/version.h>

#include <cstdio>

int main() {
  std::printf("blockscale %s\n", blockscale::Version());
  const unsigned char codes[4] = {0x7E, 0xF6, 0x80, 0x46};  // 448, -224, -0, 3.5
  const float scale = 0.5f;
  signed char out[4];
  float row_scale = 0;
  const blockscale::RowFault fault = blockscale::ConvertFp8RowsToInt8(
      {.codes = codes,
       .rows = 1,
       .columns = 4,
       .scales = &scale,
       .grid_columns = 1,
       .block_rows = 128,
       .block_columns = 128},
      blockscale::Int8Range::k127, {.codes = out, .row_scales = &row_scale}, nullptr);
  if (fault.kind != blockscale::RowFault::Kind::kNone) return 1;
  const auto plan = blockscale::PlanConversion({.source = "/no/such/folder", .output = "/tmp/x"});
  if (plan.ok()) return 1;
  std::printf("%d %d %d %d\n", out[0], out[1], out[2], out[3]);
  return 0;
}
