#!/usr/bin/env bash
# The compose test with everything it needs: engine, base image, and an end to the engine that it started.
#   run.sh PYTHON    PYTHON: of the development environment
set -euo pipefail
cd "$(dirname "$0")/../.."
state=${SERVEBENCH_COMPOSE_STATE:-$(mktemp -d)}
code=0
tests/compose/engine.sh "$1" "$state" || code=$?
if [ "$code" -eq 0 ]; then
  export DOCKER_CONFIG=$state PYTHON_IMAGE=servebench-base:local
  "$1" -m pytest tests/compose || code=$?
elif [ "$code" -eq 3 ]; then
  code=0 # the reason is printed
fi
if [ -f "$state/dockerd.pid" ]; then
  kill "$(cat "$state/dockerd.pid")" 2>/dev/null || true
  rm -f "$state/dockerd.pid"
fi
[ -n "${SERVEBENCH_COMPOSE_STATE:-}" ] || rm -rf "$state"
exit "$code"
