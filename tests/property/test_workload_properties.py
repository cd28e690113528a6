"""Whatever a workload file says within its bounds, its plan is in order and it can be written down again."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servebench.core.errors import SpecError
from servebench.core.units import format_duration
from servebench.workload.codec import decode_workload, encode_workload
from servebench.workload.load import parse_workload
from servebench.workload.prompts import PromptSet
from servebench.workload.resolve import dump_yaml
from servebench.workload.schedule import plan
from servebench.workload.tokens import estimate_tokens

MS = 1_000_000
TRACE = "trace.csv"
PROMPTS = PromptSet.of([f"prompt {number}" for number in range(7)], "word after word of running text\n" * 50)

rates = st.one_of(st.just(0.0), st.floats(0.01, 30, allow_nan=False), st.integers(1, 30))
durations = st.integers(1, 5_000_000_000).map(format_duration)
lengths = st.one_of(
    st.just({"from": "prompt"}),
    st.integers(1, 5000).map(lambda tokens: {"from": "fixed", "tokens": tokens}),
    st.integers(1, 500).map(lambda low: {"from": "uniform", "min": low, "max": 2 * low}),
    st.floats(1, 500).map(lambda median: {"from": "lognormal", "median": median, "sigma": 0.5, "max": 900}),
    st.lists(st.integers(1, 500), min_size=1, max_size=3).map(lambda values: {"from": "empirical", "tokens": values}),
    st.builds(
        lambda cap, over: {"from": "trace", **({} if cap is None else {"max": cap}), "over": over},
        st.none() | st.integers(100, 3000),
        st.sampled_from(["clip", "drop", "scale"]),
    ),
)
texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20)
words = st.one_of(
    texts, st.sampled_from(["on", "no", "1e3", "0123", "1:30", "null", "~", "true", "2024-01-01", "1.10"])
)

taken = {"model", "messages", "prompt", "stream", "stream_options", "max_tokens"}
params = texts.filter(lambda name: name not in taken)


@st.composite
def bursts(draw: st.DrawFn) -> dict[str, Any]:
    every_ns = draw(st.integers(2, 2_000) | st.integers(2 * MS, 3_000 * MS))
    length_ns = draw(st.integers(1, every_ns - 1))
    duration_ns = draw(st.integers(every_ns, every_ns * 5))
    return {
        "shape": "burst",
        "base_per_s": draw(rates),
        "peak_per_s": draw(rates),
        "every": format_duration(every_ns),
        "length": format_duration(length_ns),
        "duration": format_duration(duration_ns),
    }


gaps = st.one_of(
    st.sampled_from([{"process": "constant"}, {"process": "poisson"}]),
    st.floats(0.1, 10).map(lambda cv: {"process": "gamma", "cv": cv}),
    st.floats(0.1, 10).map(lambda cv: {"process": "weibull", "cv": cv}),
    st.floats(0.3, 10).map(lambda shape: {"process": "weibull", "shape": shape}),
)
onoff = st.fixed_dictionaries(
    {
        "process": st.just("onoff"),
        "on": st.integers(10 * MS, 5_000 * MS).map(format_duration),
        "off": st.integers(10 * MS, 5_000 * MS).map(format_duration),
        "inside": gaps,
    }
)
mixes = st.lists(st.tuples(st.floats(0.01, 100), gaps | onoff), min_size=1, max_size=3).map(
    lambda parts: {
        "process": "mix",
        "clients": [
            {"name": f"c{index}", "weight": weight, "arrivals": law} for index, (weight, law) in enumerate(parts)
        ],
    }
)
laws = gaps | onoff | mixes

shapes = st.one_of(
    st.fixed_dictionaries(
        {"shape": st.just("ramp"), "from_per_s": rates, "to_per_s": rates, "duration": durations},
        optional={"arrivals": laws},
    ),
    st.fixed_dictionaries(
        {
            "shape": st.just("spike"),
            "base_per_s": rates,
            "peak_per_s": rates,
            "before": durations,
            "length": durations,
            "recovery": durations,
        }
    ),
    st.fixed_dictionaries({"shape": st.just("soak"), "rate_per_s": rates, "duration": durations}),
    st.fixed_dictionaries(
        {
            "shape": st.just("diurnal"),
            "mean_per_s": rates,
            "profile": st.sampled_from(["m-small", "m-large", "deepseek-r1", "ragpulse"])
            | st.lists(st.floats(0.125, 8), min_size=2, max_size=5),
            "duration": st.integers(1, 5_000_000_000).map(format_duration),
        },
        optional={"period": st.just("5s"), "start": st.just("0s")},
    ),
    st.fixed_dictionaries({"shape": st.just("steady"), "rate_per_s": rates, "duration": durations}),
    st.fixed_dictionaries(
        {"shape": st.just("steps"), "rates_per_s": st.lists(rates, min_size=1, max_size=5), "step_duration": durations}
    ),
    st.fixed_dictionaries(
        {
            "shape": st.just("steps"),
            "rates_per_s": st.lists(rates, min_size=1, max_size=5),
            "duration": st.integers(5, 5_000_000_000).map(format_duration),
        }
    ),
    bursts(),
    st.fixed_dictionaries(
        {
            "shape": st.just("replay"),
            "trace": st.just({"kind": "azure", "path": TRACE}),
            "start": st.integers(0, 400_000).map(lambda ms: f"{ms}ms"),
            "length": st.integers(1, 20_000 * MS).map(format_duration),
            "speed": st.floats(0.1, 1000),
            "spread": st.booleans(),
        }
    ),
)


caches = st.one_of(
    st.sampled_from([{"state": "undeclared"}, {"state": "cold"}]),
    st.fixed_dictionaries({"state": st.just("warm"), "rate_per_s": st.floats(0.1, 100), "duration": durations}),
    st.fixed_dictionaries({"state": st.just("shared_prefix"), "share": st.floats(0.01, 0.99)}),
)
orders = st.one_of(
    st.sampled_from([{"order": "shuffled"}, {"order": "sequential"}, {"order": "zipf"}]),
    st.floats(0, 3).map(lambda exponent: {"order": "zipf", "zipf_exponent": exponent}),
)


@st.composite
def files(draw: st.DrawFn) -> str:
    phases = [
        {"name": f"p{index}", "measured": draw(st.booleans()), **shape}
        for index, shape in enumerate(draw(st.lists(shapes, min_size=1, max_size=3)))
    ]
    document = {
        "name": "any",
        "seed": draw(st.integers(0, 2**63 - 1)),
        "target": {
            "cache": draw(caches),
            "model": draw(st.none() | words),
            "declared": draw(st.dictionaries(words, words, max_size=3)),
        },
        "prompts": {
            "source": {"kind": "mt-bench"},
            **draw(orders),
            "input_tokens": draw(lengths),
            "output_tokens": draw(lengths),
            "trace": {"kind": "azure", "path": TRACE, "length": "5m"},
        },
        "load": {
            "kind": "open",
            "arrivals": draw(laws),
            "phases": phases,
        },
        "requests": {"params": draw(st.dictionaries(params, words | st.booleans() | st.integers(), max_size=2))},
    }
    return json.dumps(document, ensure_ascii=draw(st.booleans()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a trace of 400 rows, one a second, some without output."""
    rows = [f"2024-01-01 00:{at // 60:02}:{at % 60:02}.{at:07},{1 + 11 * at},{at % 90}" for at in range(400)]
    folder = tmp_path_factory.mktemp("workloads")
    (folder / TRACE).write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows), encoding="utf-8")
    return folder


@settings(max_examples=60, deadline=None)
@given(text=files())
def test_every_plan_is_in_order_within_its_phases_and_numbered_from_zero(folder: Path, text: str) -> None:
    workload = parse_workload(text, "any.yaml", folder)
    schedule = plan(workload, PROMPTS)
    n = len(schedule)
    assert (schedule.seq == np.arange(n)).all()
    assert (np.diff(schedule.intended_ns) >= 0).all()
    assert (np.diff(schedule.phase) >= 0).all()
    starts = np.cumsum([0, *(phase.duration_ns for phase in workload.phases)])
    assert (schedule.intended_ns >= starts[schedule.phase]).all()
    assert (schedule.intended_ns < starts[schedule.phase + 1]).all()
    assert sum(phase.planned for phase in schedule.phases) == n
    assert ((schedule.prompt_id >= 0) & (schedule.prompt_id < len(PROMPTS))).all()
    for column in (schedule.input_tokens, schedule.max_tokens):
        assert ((column == -1) | (column >= 1)).all()
    assert plan(workload, PROMPTS).schedule_hash == schedule.schedule_hash


@settings(max_examples=100, deadline=None)
@given(text=files())
def test_every_workload_survives_the_file_and_the_json(folder: Path, text: str) -> None:
    workload = parse_workload(text, "any.yaml", folder)
    assert parse_workload(dump_yaml(workload), "/elsewhere/any.yaml") == workload
    assert decode_workload(encode_workload(workload)) == workload


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 6), st.integers(1, 5000))
def test_a_rendered_prompt_ends_with_the_prompt_and_has_about_the_wanted_tokens(prompt_id: int, wanted: int) -> None:
    (message,) = PROMPTS.messages(prompt_id, wanted)
    assert message.content.endswith(f"prompt {prompt_id}")
    estimate = estimate_tokens(message.content)
    assert estimate == estimate_tokens(f"prompt {prompt_id}") or abs(estimate - wanted) <= 4
    assert estimate <= max(wanted, estimate_tokens(f"prompt {prompt_id}")) + 4


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_workload_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        parse_workload(text, "any.yaml")
