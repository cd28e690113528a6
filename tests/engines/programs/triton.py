"""Serve two models by NVIDIA Triton: `triton.py HTTP_PORT GRPC_PORT METRICS_PORT`.

`toy` streams five pieces of text and is loaded last. `whole` answers in one piece, computes up to eight requests at
once, and keeps its answers in Triton's response cache, which models that stream cannot have.
"""

import signal
import sys
import time

import numpy as np
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

BATCH = 8
COMPUTE_S = 0.05


def pieces(requests):
    """Yield a piece for each request, five times; Triton wants a generator of a decoupled model."""
    for number in range(5):
        time.sleep(0.01)
        yield [{"text_output": np.array([f"piece {number} ".encode()])} for _ in requests]


def whole(requests):
    """Return the prompt's length in words for each request of a batch, after the time that a batch takes."""
    time.sleep(COMPUTE_S)
    return [
        {"text_output": np.array([[f"{len(request['prompt'].item().split())} words".encode()]])} for request in requests
    ]


def main() -> None:
    """Start Triton and wait to be told to stop."""
    http, grpc, metrics = (int(port) for port in sys.argv[1:4])
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    config = TritonConfig(
        **ports,
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        cache_config=[f"local,size={1 << 20}"],
    )
    text = {"dtype": bytes, "shape": (1,)}
    tensors = {"inputs": [Tensor(name="prompt", **text)], "outputs": [Tensor(name="text_output", **text)]}
    batcher = DynamicBatcher(max_queue_delay_microseconds=5_000)
    batching = ModelConfig(max_batch_size=BATCH, batcher=batcher, response_cache=True)
    with Triton(config=config) as server:
        server.bind(model_name="whole", infer_func=whole, config=batching, **tensors)
        server.bind(model_name="toy", infer_func=pieces, config=ModelConfig(batching=False, decoupled=True), **tensors)
        server.run()
        signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    main()
