"""Pages captured from real servers, read into canonical series. Expected numbers were read off the pages by eye."""

import re
from pathlib import Path

import pytest

from servebench.telemetry.exposition import read_page
from servebench.telemetry.reading import Reading, canonical, missing_text

PAGES = Path(__file__).parent / "metrics"

EXPECTED: dict[str, tuple[str, dict[str, float], set[str]]] = {
    "vllm": (
        "vllm",
        {
            "running": 0,
            "waiting": 0,
            "batch_size": 0,
            "kv_usage": 0,
            "preemptions": 0,
            "aborted": 0,
            "prefix_queries": 160,
            "prefix_hits": 0,
            "prompt_tokens": 160,
            "output_tokens": 281,
            "ttft_s": 20.656387090682983,
            "ttft_n": 12,
            "queue_s": 0.0002878089997011557,
            "queue_n": 11,
            "prefill_s": 20.45584752100035,
            "prefill_n": 11,
            "decode_s": 0.21505534199980048,
            "decode_n": 11,
            "e2e_s": 20.845491886138916,
            "e2e_n": 11,
        },
        {"drafted_tokens", "accepted_tokens"},
    ),
    "dynamo-mocker": (
        "dynamo",
        {
            "running": 0,
            "waiting": 0,
            "prefix_queries": 1159,
            "prefix_hits": 0,
            "prompt_tokens": 1159,
            "output_tokens": 260,
            "ttft_s": 0.240454416,
            "ttft_n": 12,
            "e2e_s": 1.676536042 + 0.000070905,
            "e2e_n": 14,
        },
        set(),
    ),
    "llamacpp": (
        "llama.cpp",
        {
            "running": 1,
            "waiting": 0,
            "batch_size": 1.04444,
            "prefix_hits": 263,
            "prompt_tokens": 81,
            "output_tokens": 93,
            "prefill_s": 7.29837,
            "decode_s": 27.3041,
            "drafted_tokens": 0,
            "accepted_tokens": 0,
        },
        {"kv_usage"},
    ),
    "triton": (
        "triton",
        {
            "waiting": 0,
            "queue_s": 0.00015,
            "queue_n": 2,
            "compute_s": 0.002068,
            "compute_n": 2,
            "inferences": 2,
            "executions": 2,
            "e2e_s": 0.007082,
            "e2e_n": 2,
        },
        {"ttft_s", "ttft_n", "cache_hits", "cache_misses"},
    ),
    "triton-cache": (
        "triton",
        {
            "waiting": 0,
            "queue_s": 0.156555,
            "queue_n": 17,
            "compute_s": 0.664634,
            "compute_n": 17,
            "inferences": 15,
            "executions": 11,
            "e2e_s": 0.827566,
            "e2e_n": 17,
            "cache_hits": 2,
            "cache_misses": 11,
        },
        {"ttft_s", "ttft_n"},
    ),
    "mlserver": ("mlserver", {"running": 0, "e2e_s": 0.19437179300075513, "e2e_n": 5}, set()),
    "litellm": (
        "litellm",
        {
            "running": 1,
            "prompt_tokens": 56 + 24,
            "output_tokens": 30 + 12,
            "ttft_s": 0.657709 + 0.012577,
            "ttft_n": 7 + 3,
            "queue_s": 0.1608879566192627 + 0.025628089904785156,
            "queue_n": 7 + 3,
            "e2e_s": 2.4650339566192625 + 0.29739008990478516,
            "e2e_n": 7 + 3,
            "cache_misses": 7 + 3,
        },
        {"cache_hits"},
    ),
    "sglang-handmade": (
        "sglang",
        {
            "running": 7,
            "batch_size": 7,
            "waiting": 3,
            "kv_usage": 0.28,
            "preemptions": 2,
            "prefix_queries": 8128902,
            "prefix_hits": 1024,
            "prompt_tokens": 8128902,
            "output_tokens": 7557572,
            "ttft_s": 1.5,
            "ttft_n": 4,
            "e2e_s": 9,
            "e2e_n": 4,
        },
        {"queue_s", "queue_n", "prefill_s", "prefill_n"},
    ),
    "tgi-handmade": (
        "tgi",
        {
            "running": 5,
            "batch_size": 5,
            "waiting": 11,
            "prompt_tokens": 600,
            "output_tokens": 240,
            "queue_s": 0.5,
            "queue_n": 6,
            "e2e_s": 12,
            "e2e_n": 6,
            "prefill_s": 1.25,
            "prefill_n": 4,
            "decode_step_s": 8.5,
            "decode_step_n": 240,
        },
        set(),
    ),
    "node": (
        "node",
        # Two cores, the seconds of all modes; a machine without RAPL tells no joules.
        {"cpu_idle_s": 10817.2 + 8939.79, "cpu_s": 28520.16 + 28549.23, "memory_available": 23268843520},
        {"package_joules"},
    ),
    "dcgm-handmade": (
        "dcgm",
        {"gpu_busy": 0.6, "gpu_memory": 30 * 2**30, "gpu_power": 550.75},
        set(),
    ),
    "nvidia-smi-handmade": (
        "nvidia-smi",
        {"gpu_busy": 0.875, "gpu_memory": 9283043328, "gpu_power": 245.5},
        set(),
    ),
}


def body_of(name: str) -> str:
    text = (PAGES / f"{name}.txt").read_bytes().decode()
    return re.split(r"\r?\n\r?\n", text, maxsplit=1)[1]


def reading_of(name: str) -> Reading:
    return canonical(read_page(body_of(name)))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_page_of_each_server_gives_its_canonical_series(name: str) -> None:
    dialect, values, missing = EXPECTED[name]
    reading = reading_of(name)
    assert reading.dialect == dialect
    assert reading.values == pytest.approx(values)
    assert {one.series for one in reading.missing} == missing


def test_what_an_exporter_does_not_show_is_named_and_is_not_zero() -> None:
    # A GPU that is cut into instances (MIG) has no utilisation as a whole.
    page = read_page("\n".join(line for line in body_of("dcgm-handmade").splitlines() if "GPU_UTIL" not in line))
    reading = canonical(page)
    assert "gpu_busy" not in reading.values
    assert "gpu_busy (looked for DCGM_FI_DEV_GPU_UTIL)" in missing_text(reading.missing, page)


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.txt")))
def test_no_line_of_a_real_page_is_left_unread(name: str) -> None:
    page = read_page(body_of(name))
    numbers = [line for line in body_of(name).splitlines() if line.strip() and not line.startswith("#")]
    assert page.unread == 0
    assert len(page.samples) == len(numbers) > 0
