#!/usr/bin/env bash
# The benchmarks: the kernels, then the whole command. Prints ratios to copies made in the same run.
# usage: bench/run.sh BUILD_FOLDER
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
"$build/bin/fp8_to_int8_bench"
"$build/bin/block_quant_bench"
"$build/bin/target_matching_bench"
/usr/bin/python3 "$here/whole_command.py" "$build/bin/blockscale" "$build/bench-work" "${BENCH_ROUNDS:-5}"
