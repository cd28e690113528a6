"""Serve a model that streams four pieces of text by MLServer: `mlserver_start.py HTTP_PORT GRPC_PORT METRICS_PORT`."""

import json
import os
import sys
from pathlib import Path

MODEL = Path(__file__).with_name("mlserver_toy.py")


def main() -> None:
    """Write the settings into the working folder and become MLServer."""
    http, grpc, metrics = (int(port) for port in sys.argv[1:4])
    ports = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    Path("settings.json").write_text(json.dumps({**ports, "parallel_workers": 0, "gzip_enabled": False}))
    Path("model-settings.json").write_text(json.dumps({"name": "toy", "implementation": "mlserver_toy.Toy"}))
    Path("mlserver_toy.py").write_text(MODEL.read_text())
    os.execv(sys.executable, [sys.executable, "-m", "mlserver.cli.main", "start", "."])


if __name__ == "__main__":
    main()
