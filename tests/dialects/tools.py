"""How other load tools are run against a server, and where the numbers stand that they print."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEERS = Path(os.environ.get("PEERS", Path(__file__).parents[2] / ".cache" / "peers")).absolute()
STREAMS, REQUESTS, PROMPT_TOKENS, TOKENS = 2, 40, 32, 16

Numbers = dict[str, dict[str, float]]
"""By key of the dialect (ttft, tpot, …) the statistics by the tool's own names, in the dialect's units."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: `command` prepares `folder` and returns the command line, `read` finds the numbers afterwards.

    `endpoint` is what it asks.
    """

    name: str
    endpoint: str
    command: Callable[[str, Path], list[str]]
    read: Callable[[Path], Numbers]

    @property
    def missing(self) -> str | None:
        """Return why the tool cannot be run, None where it can."""
        if (PEERS / self.name / "ready").exists():
            return None
        said = PEERS / f"{self.name}.skipped"
        return said.read_text().strip() if said.exists() else "not installed; make test-dialects installs it"

    def measure(self, url: str, folder: Path) -> Numbers:
        """Run the tool in a folder of its own and return what it printed."""
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        if self.name == "aiperf":  # takes a local tokenizer only where it believes that it may ask the hub
            del environment["HF_HUB_OFFLINE"]
        with (folder / "said.txt").open("w") as said:
            done = subprocess.run(
                self.command(url, folder),
                cwd=folder,
                env=environment,
                stdout=said,
                stderr=said,
                timeout=300,
                check=False,
            )
        if done.returncode:
            words = (folder / "said.txt").read_text(errors="replace")[-2000:]
            msg = f"{self.name} ended with {done.returncode}: {words}"
            raise RuntimeError(msg)
        return self.read(folder)


def _binary(name: str, program: str) -> str:
    return str(PEERS / name / "bin" / program)


def _json(path: Path) -> Any:  # noqa: ANN401
    return json.loads(path.read_text())


def _only(folder: Path, pattern: str) -> Any:  # noqa: ANN401
    (path,) = folder.glob(pattern)
    return _json(path)


def _scaled(found: Mapping[str, Any], names: Mapping[str, str], factor: float = 1.0) -> dict[str, float]:
    return {ours: factor * found[theirs] for ours, theirs in names.items()}


def _vllm(url: str, folder: Path) -> list[str]:
    lengths = ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS)]
    return [
        *(_binary("vllm", "vllm"), "bench", "serve", "--backend", "openai-chat", "--base-url", url),
        *("--endpoint", "/v1/chat/completions", "--model", "mock", "--tokenizer", str(PEERS / "tok")),
        *("--dataset-name", "random", *lengths, "--num-prompts", str(REQUESTS), "--max-concurrency", str(STREAMS)),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "99", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(folder), "--result-filename", "result.json"),
    ]


def _read_vllm(folder: Path) -> Numbers:
    found = _json(folder / "result.json")
    keys = {"ttft": "ttft", "tpot": "tpot", "gap": "itl", "e2e": "e2el"}
    latency = {
        key: _scaled(found, {stat: f"{stat}_{word}_ms" for stat in ("mean", "median", "p99")})
        for key, word in keys.items()
    }
    rates = {"requests": "request_throughput", "output": "output_throughput", "tokens": "total_token_throughput"}
    return latency | {key: {"value": found[word]} for key, word in rates.items()}


def _sglang(url: str, folder: Path) -> list[str]:
    lengths = ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS)]
    return [
        *(_binary("sglang", "python"), str(Path(__file__).with_name("run_sglang.py"))),
        *("--backend", "vllm-chat", "--base-url", url, "--model", "mock", "--tokenizer", str(PEERS / "tok")),
        *("--dataset-name", "random-ids", *lengths, "--random-range-ratio", "1", "--num-prompts", str(REQUESTS)),
        *("--max-concurrency", str(STREAMS), "--disable-tqdm", "--warmup-requests", "0"),
        *("--output-file", str(folder / "result.jsonl")),
    ]


def _read_sglang(folder: Path) -> Numbers:
    found = _json(folder / "result.jsonl")
    keys = {"ttft": "ttft", "tpot": "tpot", "gap": "itl", "e2e": "e2e_latency"}
    latency = {
        key: _scaled(found, {stat: f"{stat}_{word}_ms" for stat in ("mean", "median", "p99")})
        for key, word in keys.items()
    }
    rates = {"requests": "request_throughput", "output": "output_throughput", "tokens": "total_throughput"}
    return latency | {key: {"value": found[word]} for key, word in rates.items()}


def _guidellm(url: str, folder: Path) -> list[str]:
    return [
        *(_binary("guidellm", "guidellm"), "run", "--backend"),
        f"kind=openai_http,target={url},model=mock,request_format=/v1/chat/completions",
        *("--profile", f"kind=concurrent,streams={STREAMS}", "--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--tokenizer", f"kind=hf_auto,model={PEERS / 'tok'}", "--data"),
        f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={TOKENS}",
        *("--output", f"kind=json,path={folder / 'result.json'}", "--disable-console-interactive"),
    ]


def _read_guidellm(folder: Path) -> Numbers:
    metrics = _json(folder / "result.json")["benchmarks"][0]["metrics"]
    words = {
        "ttft": "time_to_first_token_ms",
        "tpot": "time_per_output_token_ms",
        "gap": "inter_token_latency_ms",
        "e2e": "request_latency",
    }
    names = {"mean": "mean", "median": "median"}
    found = {
        key: _scaled(metrics[word]["successful"], names, 1000 if key == "e2e" else 1) for key, word in words.items()
    }
    rates = {"requests": "requests_per_second", "output": "output_tokens_per_second"}
    return found | {key: {"value": metrics[word]["successful"]["mean"]} for key, word in rates.items()}


def _aiperf(url: str, folder: Path) -> list[str]:
    return [
        *(_binary("aiperf", "aiperf"), "profile", "-m", "mock", "--endpoint-type", "chat", "--streaming", "--url", url),
        *("--concurrency", str(STREAMS), "--request-count", str(REQUESTS), "--osl", str(TOKENS), "--osl-stddev", "0"),
        *("--isl", str(PROMPT_TOKENS), "--isl-stddev", "0", "--tokenizer", str(PEERS / "tok")),
        *("--use-server-token-count", "--ui", "none", "--artifact-dir", str(folder)),
    ]


def _read_aiperf(folder: Path) -> Numbers:
    found = _json(folder / "profile_export_aiperf.json")
    words = {
        "ttft": "time_to_first_token",
        "tpot": "inter_token_latency",
        "gap": "inter_chunk_latency",
        "e2e": "request_latency",
    }
    latency = {key: _scaled(found[word], {"avg": "avg", "p50": "p50"}) for key, word in words.items()}
    rates = {"requests": "request_throughput", "output": "output_token_throughput"}
    return latency | {key: {"value": found[word]["avg"]} for key, word in rates.items()}


def _genai_bench(url: str, folder: Path) -> list[str]:
    prompts = folder / "prompts.txt"
    prompts.write_text("\n".join("the of and to in is was for that on " * 4 for _ in range(50)))
    return [
        *(_binary("genai-bench", "genai-bench"), "benchmark", "--api-backend", "vllm", "--api-base", url),
        *("--api-key", "x", "--api-model-name", "mock", "--model", "mock", "--model-tokenizer", str(PEERS / "tok")),
        *("--task", "text-to-text", "--traffic-scenario", f"D({PROMPT_TOKENS},{TOKENS})"),
        *("--num-concurrency", str(STREAMS), "--max-time-per-run", "2", "--max-requests-per-run", str(REQUESTS)),
        *("--experiment-base-dir", str(folder), "--log-dir", str(folder), "--num-workers", "0"),
        *("--dataset-path", str(prompts), "--experiment-folder-name", "result"),
    ]


def _read_genai_bench(folder: Path) -> Numbers:
    found = _only(folder, "result/D*.json")["aggregated_metrics"]
    words = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2e_latency"}
    latency = {key: _scaled(found["stats"][word], {"mean": "mean", "p50": "p50"}, 1000) for key, word in words.items()}
    rates = {"requests": "requests_per_second", "output": "mean_output_throughput_tokens_per_s"}
    return latency | {key: {"value": found[word]} for key, word in rates.items()}


def _inference_perf(url: str, folder: Path) -> list[str]:
    lengths = {"min": PROMPT_TOKENS, "max": PROMPT_TOKENS, "mean": PROMPT_TOKENS, "std_dev": 0}
    config = {
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "mock", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(PEERS / "tok")},
        "data": {
            "type": "random",
            "input_distribution": lengths | {"total_count": REQUESTS + 1},
            "output_distribution": dict.fromkeys(("min", "max", "mean"), TOKENS)
            | {"std_dev": 0, "total_count": REQUESTS + 1},
        },
        "load": {
            "type": "concurrent",
            "num_workers": 1,
            "worker_max_concurrency": 100,
            "stages": [{"num_requests": REQUESTS, "concurrency_level": STREAMS}],
        },
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(folder / "result")}},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    return [_binary("inference-perf", "inference-perf"), "-c", str(folder / "config.yml")]


def _read_inference_perf(folder: Path) -> Numbers:
    found = _json(folder / "result" / "summary_lifecycle_metrics.json")["successes"]
    words = {
        "ttft": "time_to_first_token",
        "tpot": "time_per_output_token",
        "gap": "inter_token_latency",
        "e2e": "request_latency",
    }
    names = {"mean": "mean", "median": "median"}
    latency = {key: _scaled(found["latency"][word], names, 1000) for key, word in words.items()}
    rates = {"requests": "requests_per_sec", "output": "output_tokens_per_sec"}
    return latency | {key: {"value": found["throughput"][word]} for key, word in rates.items()}


TOOLS = (
    Tool(name="vllm", endpoint="openai-chat", command=_vllm, read=_read_vllm),
    Tool(name="sglang", endpoint="openai-chat", command=_sglang, read=_read_sglang),
    Tool(name="guidellm", endpoint="openai-chat", command=_guidellm, read=_read_guidellm),
    Tool(name="aiperf", endpoint="openai-chat", command=_aiperf, read=_read_aiperf),
    Tool(name="genai-bench", endpoint="openai-chat", command=_genai_bench, read=_read_genai_bench),
    Tool(name="inference-perf", endpoint="openai-completions", command=_inference_perf, read=_read_inference_perf),
)
