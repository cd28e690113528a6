"""Serve a model that streams five pieces of text by NVIDIA Triton: `triton.py HTTP_PORT GRPC_PORT METRICS_PORT`."""

import signal
import sys
import time

import numpy as np
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig


def pieces(requests):
    """Yield a piece for each request, five times; Triton wants a generator of a decoupled model."""
    for number in range(5):
        time.sleep(0.01)
        yield [{"text_output": np.array([f"piece {number} ".encode()])} for _ in requests]


def main() -> None:
    """Start Triton and wait to be told to stop."""
    http, grpc, metrics = (int(port) for port in sys.argv[1:4])
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    with Triton(config=TritonConfig(**ports, http_address="127.0.0.1", grpc_address="127.0.0.1")) as server:
        server.bind(
            model_name="toy",
            infer_func=pieces,
            inputs=[Tensor(name="prompt", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="text_output", dtype=bytes, shape=(1,))],
            config=ModelConfig(batching=False, decoupled=True),
        )
        server.run()
        signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    main()
