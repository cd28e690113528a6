#!/usr/bin/env bash
# The compose test with everything it needs: engine, base image, and an end to the engine that it started.
#   run.sh PYTHON    PYTHON: of the development environment
set -euo pipefail
cd "$(dirname "$0")/../.."
state=${SERVEBENCH_COMPOSE_STATE:-$(mktemp -d)}
code=0
# An engine that is started sets the policy of forwarded packets to DROP and leaves it so.
forward=$(iptables -S FORWARD 2>/dev/null | head -1 || true)
tests/compose/engine.sh "$1" "$state" || code=$?
if [ "$code" -eq 0 ]; then
  export DOCKER_CONFIG=$state PYTHON_IMAGE=servebench-base:local
  # Each command of the test has a deadline of its own; this one is for what nobody thought of, and is said aloud.
  timeout --kill-after=30 1800 "$1" -m pytest tests/compose || code=$?
  if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
    echo "compose test: not done after 30 minutes; what runs:"
    timeout 20 docker ps --all --no-trunc --format '{{.Names}}  {{.Status}}  {{.Command}}' || true
  fi
elif [ "$code" -eq 3 ]; then
  code=0 # the reason is printed
fi
if [ -f "$state/dockerd.pid" ]; then
  engine=$(cat "$state/dockerd.pid")
  kill "$engine" 2>/dev/null || true
  for _ in $(seq 50); do
    kill -0 "$engine" 2>/dev/null || break
    sleep 0.2
  done
  rm -f "$state/dockerd.pid"
  if [ "${forward:--P FORWARD ACCEPT}" = "-P FORWARD ACCEPT" ]; then
    iptables -P FORWARD ACCEPT 2>/dev/null || true
  fi
fi
[ -n "${SERVEBENCH_COMPOSE_STATE:-}" ] || rm -rf "$state"
exit "$code"
