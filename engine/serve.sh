#!/usr/bin/env bash
# Serve a DiffusionGemma checkpoint with the real vLLM on a CPU, in the foreground.
#
#   engine/serve.sh MODEL PORT CANVAS [vLLM arguments...]
#
# Ready when GET /health answers 200. ENGINE_VENV names the environment that engine/setup.sh made
# (default .engine/venv). Arguments given after CANVAS win over the ones below.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${ENGINE_VENV:-$(dirname "$here")/.engine/venv}

[[ $# -ge 3 ]] || { echo "usage: engine/serve.sh MODEL PORT CANVAS [vLLM arguments...]" >&2; exit 2; }
[[ -x $venv/bin/python ]] || { echo "no engine in $venv: run engine/setup.sh first" >&2; exit 2; }
model=$1 port=$2 canvas=$3
shift 3

# Kernels are interpreted (vllm_cpu_interpreter/), so nothing is compiled either.
export TRITON_INTERPRET=1 TRITON_DEFAULT_BACKEND=cpu TORCHDYNAMO_DISABLE=1
# The checkpoint is a folder and the server is for this machine alone: nothing is fetched or reported.
export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_HOST_IP=127.0.0.1

arguments=(
    --model "$model" --served-model-name dgemma
    --host 127.0.0.1 --port "$port"
    --diffusion-config "{\"canvas_length\": $canvas}"
    --dtype float32 --max-model-len 4096 --max-num-seqs 8
    --enforce-eager --language-model-only
    --kv-cache-memory-bytes $((256 << 20)) --enable-prefix-caching --block-size 32
    --enable-prompt-tokens-details
    --max-logprobs 32
)
exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server "${arguments[@]}" "$@"
