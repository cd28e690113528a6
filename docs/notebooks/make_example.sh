#!/bin/sh
# Make example-run anew: a real run of two minutes against the simulated engine. Usage: docs/notebooks/make_example.sh PYTHON
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
work=$(mktemp -d)
trap 'kill "$engine" 2>/dev/null || true; rm -rf "$work"' EXIT
"$python" -m servebench.sim --port 8797 --model tiny-1b --seed 3 --set max_num_seqs=24 &
engine=$!
sleep 3
cd "$work"
cp "$here/example.yaml" .
SERVEBENCH_METRICS_URLS=off "$python" -m servebench.cli run example.yaml --url http://127.0.0.1:8797 --workers 1 --no-report
rm -rf "$here/example-run"
mkdir "$here/example-run"
sed -i 's/"host": "[^"]*"/"host": "node-1"/' runs/*/run.json
cp -r runs/*/run.json runs/*/requests runs/*/health "$here/example-run"
du -sh "$here/example-run"
