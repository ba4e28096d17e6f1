#!/usr/bin/env bash
# The whole way on a small checkpoint: inspect, dry run, convert, verify, check. Called by `make demo`.
# Of FOLDER only what an earlier demo left is removed.
# usage: scripts/demo.sh PROGRAM FOLDER
set -euo pipefail
program=$(realpath "$1")
folder=$2

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() {
  printf '$ blockscale'; printf ' %s' "$@"; printf '\n'
  "$program" "$@"
}

mkdir -p "$folder"
cd "$folder"
rm -rf minimax-fp8 minimax-int8 minimax-mxfp4 minimax-nvfp4

say "1. A small checkpoint with MiniMax-M2's names, types and config (FP8 blocks of 128 x 128)"
run synth --family minimax-m2 --output minimax-fp8 --layers 4 --experts 32 --hidden 512 \
  --intermediate 384 --shards 5
say "2. What is in it?"
run inspect minimax-fp8
say "3. What would a conversion write?"
run convert --source minimax-fp8 --output minimax-int8 --to int8-channel --dry-run
say "4. Convert"
run convert --source minimax-fp8 --output minimax-int8 --to int8-channel
say "5. Check every element against the source, with arithmetic of its own"
run verify --source minimax-fp8 --converted minimax-int8
say "6. Would vLLM load it the way it is meant, on two GPUs? (no vLLM needed)"
run check minimax-int8 --runtime vllm --tp 2
say "7. Layer 1 of it on this CPU, in four formats, 64 tokens: how far from the FP8 source?"
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p"; }
rm -f layer-*.safetensors
printf '%-14s %-14s %10s %12s %14s\n' weights inputs MiB ms 'error to FP8'
for model in minimax-fp8 minimax-int8 minimax-mxfp4 minimax-nvfp4; do
  scheme=${model#minimax-}
  if [ ! -d "$model" ]; then
    "$program" convert --source minimax-fp8 --output "$model" --to "$scheme" --quiet
  fi
  result=$("$program" run --checkpoint "$model" --layer 1 --random 64 --json \
    --output "layer-$scheme.safetensors" \
    $([ "$scheme" = fp8 ] || echo --compare layer-fp8.safetensors))
  printf '%-14s %-14s %10.1f %12.2f %13.2f%%\n' \
    "$(grep -o 'weights=[^,]*' <<<"$result" | cut -d= -f2)" \
    "$(grep -o 'inputs=[^,"]*' <<<"$result" | cut -d= -f2)" \
    "$(field prepared_bytes <<<"$result" | awk '{print $1 / 1048576}')" \
    "$(field run_seconds <<<"$result" | awk '{print $1 * 1000}')" \
    "$(field relative_rmse <<<"$result" | awk '{print $1 * 100} END {if (!NR) print 0}')"
done
say "Done. The report of the conversion, for a browser:"
echo "$PWD/minimax-int8/conversion_report.html"
