#!/usr/bin/env bash
# Runs the proxy and the engine side by side, the proxy first, until either ends or TERM comes.
#
# docs/image.md lists the variables. The proxy takes its own settings from STRUCTURED_SERVER_*.
set -euo pipefail
shopt -s inherit_errexit

: "${PORT:=8080}"
: "${PROXY_COMMAND:=/opt/proxy/bin/structured-server}"
: "${PROXY_ARGS:=}"
: "${PROXY_STOP_S:=6}" # of TERM to the proxy, until it is killed
: "${ENGINE_COMMAND:=vllm}"
: "${ENGINE_ARGS:=}"
: "${ENGINE_STOP_S:=2}" # likewise of the engine, after the proxy
: "${ENGINE_PORT:=8000}"
: "${ENGINE_GPU:=1}" # 0: no look for a GPU
: "${ENGINE_MODEL:=cyankiwi/diffusiongemma-26B-A4B-it-AWQ-INT4}"
: "${ENGINE_REVISION:=}"
: "${ENGINE_NAME:=dgemma}"
: "${ENGINE_CANVAS:=64}"
: "${ENGINE_MAX_MODEL_LEN:=2048}"
: "${ENGINE_MAX_NUM_SEQS:=16}"
: "${ENGINE_MAX_LOGPROBS:=32}"
: "${ENGINE_DTYPE:=bfloat16}"
: "${ENGINE_GPU_MEMORY_UTILIZATION:=0.92}"
: "${ENGINE_ATTENTION_BACKEND:=TRITON_ATTN}" # empty: the engine's own choice
: "${ENGINE_ENFORCE_EAGER:=1}"
: "${ENGINE_LOAD_STRATEGY:=}" # prefetch, for weights on a mounted bucket
: "${ENGINE_TENSOR_PARALLEL:=1}"

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

say() {
  printf '{"severity":"%s","message":"entrypoint: %s"}\n' "$1" "$2" >&2
}

# gone PID SECONDS: wait for so long for a process to end.
gone() {
  local ticks
  for ((ticks = 10 * $2; ticks > 0; ticks--)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  ! kill -0 "$1" 2>/dev/null
}

# stop NAME PID SECONDS: TERM, and KILL where that does not end it. The engine's workers are of its group.
stop() {
  if [[ "$2" == 0 ]]; then return; fi # it was never started
  kill -TERM "$2" 2>/dev/null || true
  if ! gone "$2" "$3"; then
    say WARNING "$1 did not end within $3 s of TERM, and is killed"
    killed=137
  fi
  kill -KILL -- "-$2" 2>/dev/null || kill -KILL "$2" 2>/dev/null || true
  wait "$2" 2>/dev/null || true
}

stop_both() {
  stop "the proxy" "$proxy" "$PROXY_STOP_S"
  stop "the engine" "$engine" "$ENGINE_STOP_S"
}

# shellcheck disable=SC2329  # the trap calls it
told_to_stop() {
  say INFO "told to stop: the proxy drains, then the engine ends"
  stop_both
  exit "$killed"
}

killed=0
proxy=0
engine=0

# In a session of its own each, so that a signal to this group reaches them by way of this script only.
# The engine's token for the model hub is none of the proxy's business.
read -ra proxy_args <<<"$PROXY_ARGS"
env -u HF_TOKEN -u HF_TOKEN_PATH -u HUGGING_FACE_HUB_TOKEN \
  STRUCTURED_SERVER_HOST="${STRUCTURED_SERVER_HOST:-0.0.0.0}" \
  STRUCTURED_SERVER_PORT="$PORT" \
  STRUCTURED_SERVER_UPSTREAM="http://127.0.0.1:$ENGINE_PORT" \
  STRUCTURED_SERVER_MODEL="$ENGINE_NAME" \
  STRUCTURED_SERVER_CANVAS="$ENGINE_CANVAS" \
  STRUCTURED_SERVER_TOKENIZER="${STRUCTURED_SERVER_TOKENIZER:-$ENGINE_MODEL}" \
  STRUCTURED_SERVER_DRAIN_S="${STRUCTURED_SERVER_DRAIN_S:-5}" \
  setsid "$PROXY_COMMAND" serve "${proxy_args[@]}" &
proxy=$!
trap told_to_stop TERM INT

if [[ "$ENGINE_GPU" != 0 ]] && ! "$here/check-gpu.sh"; then
  stop_both
  exit 1
fi

flags=(
  --host 127.0.0.1 --port "$ENGINE_PORT"
  --served-model-name "$ENGINE_NAME"
  --diffusion-config "{\"canvas_length\": $ENGINE_CANVAS}"
  --max-model-len "$ENGINE_MAX_MODEL_LEN"
  --max-num-seqs "$ENGINE_MAX_NUM_SEQS"
  --max-logprobs "$ENGINE_MAX_LOGPROBS"
  --dtype "$ENGINE_DTYPE"
  --enable-prefix-caching
  --shutdown-timeout "$ENGINE_STOP_S"
  --no-enable-log-requests
  --disable-uvicorn-access-log
)
if [[ "$ENGINE_GPU" != 0 ]]; then
  flags+=(
    --gpu-memory-utilization "$ENGINE_GPU_MEMORY_UTILIZATION"
    --tensor-parallel-size "$ENGINE_TENSOR_PARALLEL"
    --async-scheduling
    --limit-mm-per-prompt '{"image": 0, "video": 0}'
  )
  if [[ -n "$ENGINE_ATTENTION_BACKEND" ]]; then flags+=(--attention-backend "$ENGINE_ATTENTION_BACKEND"); fi
fi
if [[ "$ENGINE_ENFORCE_EAGER" != 0 ]]; then flags+=(--enforce-eager); fi
if [[ -n "$ENGINE_REVISION" ]]; then flags+=(--revision "$ENGINE_REVISION"); fi
if [[ -n "$ENGINE_LOAD_STRATEGY" ]]; then flags+=(--safetensors-load-strategy "$ENGINE_LOAD_STRATEGY"); fi
read -ra engine_args <<<"$ENGINE_ARGS"

VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
  setsid "$ENGINE_COMMAND" serve "$ENGINE_MODEL" "${flags[@]}" "${engine_args[@]}" &
engine=$!
say INFO "the proxy is process $proxy, the engine is process $engine"

status=0
wait -n -p ended "$proxy" "$engine" || status=$?
if [[ "$ended" == "$proxy" ]]; then name="the proxy"; else name="the engine"; fi
say ERROR "$name ended by itself with status $status, and all ends with it"
stop_both
if [[ "$status" == 0 ]]; then status=1; fi # neither is ever meant to end
exit "$status"
