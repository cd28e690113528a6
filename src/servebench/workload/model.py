"""Know the workload as understood: resolved, in base units, ready to plan and to send to workers.

`spec` holds what a file may say; `resolve` turns that into these types. Shapes are gone here: each phase is a list of
rate segments, or a slice of a trace. The JSON form of `Workload` travels to the workers and into the manifest.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from servebench.workload.checks import Check

TraceKind = Literal["azure", "burstgpt", "csv", "mooncake", "qwen-bailian", "ragpulse", "servegen"]

SourceKind = Literal[
    "arena-hard", "humaneval", "jsonl", "mt-bench", "oasst", "self-instruct", "sharegpt", "text", "trace"
]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of time in which the rate goes straight from one value to another.

    `step` numbers the load level it belongs to; None where the phase has no levels.
    """

    duration_ns: int
    from_per_s: float
    to_per_s: float
    step: int | None = None


class TraceSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a trace whose own times are replayed.

    `start_ns` and `length_ns` select by trace time; `speed` 10 means ten times faster than recorded. `spread`: rows of
    one tick of a coarse clock are spread over it. `empty_output`: rows that generated nothing are kept, with so many
    output tokens; None: they are left out. `clients`: those of a ServeGen folder; empty: all.
    """

    kind: TraceKind
    path: str
    start_ns: int = 0
    length_ns: int | None = None
    speed: float = 1.0
    spread: bool = False
    empty_output: int | None = None
    clients: tuple[int, ...] = ()


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The law of the gaps between arrivals, at a local mean rate of one.

    gamma: `cv`. weibull: `shape`. onoff: episodes of exponential length, `on_ns` and `off_ns` on average; arrivals of
    `inside` fall into the on episodes only, as many more as keep the mean rate. mix: the sum of `clients`. What a
    process does not use is None or empty.
    """

    process: Literal["constant", "poisson", "gamma", "weibull", "onoff", "mix"] = "poisson"
    cv: float | None = None
    shape: float | None = None
    on_ns: int | None = None
    off_ns: int | None = None
    inside: "Arrivals | None" = None
    clients: "tuple[Client, ...]" = ()


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One of several whose arrivals are summed; its rate is its `weight` over the sum of all weights."""

    name: str
    weight: float
    arrivals: Arrivals


class Diurnal(msgspec.Struct, frozen=True, kw_only=True):
    """A day that repeats: `profile` holds the rates of equal parts of `period_ns` over the mean rate.

    The phase begins `start_ns` after the beginning of the period.
    """

    mean_per_s: float
    profile: tuple[float, ...]
    period_ns: int
    start_ns: int = 0


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A named stretch of the run; at most one of `segments` and `replay` is set.

    `shape` is the word of the file. `arrivals` replaces the workload's law in this phase. `diurnal` is what the
    segments of that shape were made from. `warm_per_s` is set for the pass before all others that sends every prompt of
    the plan once, at that rate, to fill the server's cache; it has neither segments nor a trace.
    """

    name: str
    shape: str
    duration_ns: int
    measured: bool = True
    segments: tuple[Segment, ...] = ()
    replay: TraceSlice | None = None
    arrivals: Arrivals | None = None
    diurnal: Diurnal | None = None
    warm_per_s: float | None = None


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Where a token length comes from, and what happens above `cap`.

    kind `prompt`: as long as the prompt is / no limit sent. `fixed`: `tokens`. `uniform`: `low` to `high`. `lognormal`:
    `median` and `sigma` of the logarithm. `empirical`: any of `values`. `trace`: of the replayed row, elsewhere of a
    row drawn from the lengths trace. `reply`: as long as the reply in the prompt file, by estimate.
    `over`: clip to the cap, scale all lengths of a trace so that the longest fits, or drop the request from the plan;
    all are counted.
    """

    kind: Literal["prompt", "fixed", "uniform", "lognormal", "empirical", "trace", "reply"] = "prompt"
    tokens: int | None = None
    low: int | None = None
    high: int | None = None
    median: float | None = None
    sigma: float | None = None
    values: tuple[int, ...] = ()
    cap: int | None = None
    over: Literal["clip", "drop", "scale"] = "clip"


class PromptSource(msgspec.Struct, frozen=True, kw_only=True):
    """A file of prompts; `path` is absolute, or `builtin:<name>` for data shipped in the package.

    kind `trace`: prompts made of the blocks of the lengths trace, whose path this is.
    """

    kind: SourceKind
    path: str


class Think(msgspec.Struct, frozen=True, kw_only=True):
    """The pause between an answer and the next request of the same user or conversation.

    constant: always `mean_ns`. exponential: `mean_ns` on average. trace: as the trace recorded it between the rows.
    """

    law: Literal["constant", "exponential", "trace"] = "constant"
    mean_ns: int = 0


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests a conversation has.

    fixed: `low`. prompt: as many as the user's turns in the prompt file, at most `high`. uniform: `low` to `high`.
    geometric: 1, 2, ... with the mean `mean`, at most `high`. trace: the rows of one session of the replayed trace.
    """

    law: Literal["fixed", "prompt", "uniform", "geometric", "trace"]
    low: int = 1
    high: int | None = None
    mean: float | None = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals start conversations; later turns follow the answer before them.

    history `answers`: a turn is sent behind all earlier ones and their real answers. `none`: each prompt is whole.
    """

    turns: Turns
    think: Think = Think()
    history: Literal["answers", "none"] = "answers"


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """Which prompts are sent and how long they are. The first `shared_share` of each is one text, the same for all."""

    sources: tuple[PromptSource, ...]
    order: Literal["shuffled", "sequential", "zipf"] = "shuffled"
    zipf_exponent: float | None = None
    input_tokens: Lengths = Lengths()
    output_tokens: Lengths = Lengths()
    lengths_trace: TraceSlice | None = None
    conversation: Conversation | None = None
    shared_share: float = 0.0


EndpointName: TypeAlias = Literal[
    "openai-chat",
    "openai-completions",
    "openai-responses",
    "openai-embeddings",
    "anthropic-messages",
    "tgi-generate",
    "triton-generate",
    "kserve-v2",
    "ollama-chat",
]
"""Dialects that `wire` speaks; a test holds the two lists to each other."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded. The address is no part of a workload: it is given with `--url`."""

    endpoint: EndpointName = "openai-chat"
    model: str | None = None
    declared: dict[str, str] = {}
    cache: Literal["undeclared", "cold", "warm", "shared_prefix"] = "undeclared"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The four deadlines of a request, each measured from its own start."""

    connect_ns: int = 5_000_000_000
    first_token_ns: int = 60_000_000_000
    idle_ns: int = 30_000_000_000
    total_ns: int = 600_000_000_000


class Abandon(msgspec.Struct, frozen=True, kw_only=True):
    """Users who leave an answer: `share` of all, `after_ns` from sending or with `token_events`, whichever is first."""

    share: float = 1.0
    after_ns: int | None = None
    token_events: int | None = None


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures are sent again, and how soon, where `Requests.retries` allows it.

    `statuses` empty = those that may pass by themselves. Without Retry-After the pauses begin with `pause_ns` and
    double, up to `longest_ns`; a server that wants a longer one is not asked again. `budget`: retries over requests
    that a worker has begun, None = no bound.
    """

    statuses: tuple[int, ...] = ()
    pause_ns: int = 500_000_000
    longest_ns: int = 60_000_000_000
    budget: float | None = None


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """How each request is made. `params` go into the JSON body as they are, `headers` into the head.

    `lengths`: `max_only`, an answer may be shorter than asked for; `exact`, the server is asked to make it that long,
    where its dialect has words for that. `retries` is how often a failed request is sent again, as `retrying` says.
    `redirects` follows those that stay at the target. `proxy` is an http URL without userinfo; None = straight to the
    target. `abandon` None = nobody leaves.
    """

    timeouts: Timeouts = Timeouts()
    lengths: Literal["max_only", "exact"] = "max_only"
    params: dict[str, Any] = {}
    stream: bool = True
    max_inflight: int | None = None
    headers: dict[str, str] = {}
    retries: int = 0
    redirects: bool = False
    proxy: str | None = None
    retrying: Retrying = Retrying()
    abandon: Abandon | None = None


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: metric `metric` at `quantile` (None for a share) stays at or below `limit`, or above with `at_least`.

    `limit` is in the registry's base unit: ns, ns per token, or a share of 1.
    """

    metric: str
    quantile: float | None
    limit: float
    at_least: bool = False


def limit_key(objective: Objective) -> str:
    """Return how one limit is named where requests beyond it are counted, such as `ttft>800000000`."""
    return f"{objective.metric}>{objective.limit:g}"


class StopRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends before its time; None and false = not for that.

    `error_rate`: share of the requests that ended within `window_ns`, at least `least` of them, that may fail.
    `errors`: so many failed requests in all. `objectives`: one of them cannot be met any more.
    """

    error_rate: float | None = None
    window_ns: int = 10_000_000_000
    least: int = 20
    errors: int | None = None
    objectives: bool = False


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """Closed load: `users` who each send the next request a pause after the answer to the one before.

    The run ends after `requests` or `duration_ns`; exactly one is set. The first `warmup_requests` of all come before
    that, and are not measured. Requests are numbered from one pool: no user has a quota.
    """

    users: int
    think: Think = Think()
    requests: int | None = None
    duration_ns: int | None = None
    warmup_requests: int = 0

    @property
    def total(self) -> int | None:
        """Number of requests with those of the warm-up; None where the duration ends the run."""
        return None if self.requests is None else self.warmup_requests + self.requests


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A whole workload. Equal JSON means equal load. Closed load has no phases; everything else has no `closed`.

    `accept` is asked of every answer, beside what its prompt asks.
    """

    name: str
    seed: int
    target: Target
    prompts: Prompts
    arrivals: Arrivals
    phases: tuple[Phase, ...]
    requests: Requests = Requests()
    objectives: tuple[Objective, ...] = ()
    closed: Closed | None = None
    accept: tuple[Check, ...] = ()
    stop: StopRules | None = None

    @property
    def duration_ns(self) -> int:
        """Planned length of all phases together; 0 without phases, as closed load is."""
        return sum(phase.duration_ns for phase in self.phases)
