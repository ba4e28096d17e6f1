#!/usr/bin/env bash
# Serves a converted checkpoint with vLLM on four devices. The weights name their own scheme
# (compressed-tensors, int-quantized): no quantisation flag is needed.
# usage: serve_vllm_int8.sh FOLDER [PORT]
set -euo pipefail
model=${1:?usage: serve_vllm_int8.sh FOLDER [PORT]}
port=${2:-8000}

# Before minutes of loading: would it load the way it is meant?
blockscale check "$model" --runtime vllm --tp 4

exec vllm serve "$model" \
  --port "$port" \
  --tensor-parallel-size 4 \
  --dtype bfloat16 \
  --max-model-len 8192 \
  --enforce-eager \
  --trust-remote-code
