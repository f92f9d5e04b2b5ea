#!/usr/bin/env bash
# Says which GPU and driver there are, and refuses a driver that is too old for this image's CUDA.
set -euo pipefail

say() {
  printf '{"severity":"%s","message":"check-gpu: %s"}\n' "$1" "$2" >&2
}

if ! command -v nvidia-smi >/dev/null; then
  say ERROR "there is no nvidia-smi: this container was given no GPU. Ask for one (Cloud Run: --gpu=1 --gpu-type=nvidia-l4; docker: --gpus all), or set ENGINE_GPU=0 to run the engine without."
  exit 1
fi
if ! found=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>&1); then
  say ERROR "nvidia-smi fails: ${found//[\"$'\n\\']/ }. The driver of this machine is not usable."
  exit 1
fi
driver_cuda=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -1)
say INFO "GPU: ${found//$'\n'/; }; the driver knows CUDA ${driver_cuda:-?}, this image has CUDA ${CUDA_VERSION:-?}"

# Within one major version newer minor ones run on older drivers; a newer major version does not.
image_major=${CUDA_VERSION:-0}
image_major=${image_major%%.*}
driver_major=${driver_cuda%%.*}
if [[ -n "$driver_major" && "$image_major" -gt "$driver_major" ]]; then
  say ERROR "this image was built for CUDA $CUDA_VERSION, and the driver knows CUDA $driver_cuda at most. Build the image on a base with CUDA $driver_major (--build-arg VLLM_IMAGE=...-cu129 for CUDA 12), or use a machine with a newer driver."
  exit 1
fi
