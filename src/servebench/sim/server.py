"""Know the simulator's routes: which request gets which answer, and what is kept about it."""

import time
from hashlib import blake2b
from pathlib import Path
from time import monotonic_ns
from typing import NamedTuple

import msgspec

from servebench.sim.answers import Job, StreamedAnswer, WholeAnswer
from servebench.sim.api import ApiError, Endpoint, Generation, error_body, read_generation
from servebench.sim.connection import Connection, HttpRequest
from servebench.sim.engine import Engine
from servebench.sim.faults import FaultDraw, FaultRule
from servebench.sim.frames import ID_DIGITS, Frames
from servebench.sim.lengths import AnswerRule, plan_answer
from servebench.sim.metrics_text import EngineState, SimMetrics, render_metrics
from servebench.sim.parameters import EngineParameters
from servebench.sim.runner import EngineRunner
from servebench.sim.truth import TruthDraft, TruthLog
from servebench.sim.vocabulary import WORDS

SIM_VERSION = "1.0"
"""Of the simulated engine: changes when equal requests under one seed may be answered differently."""

_GENERATION_PATHS: dict[str, Endpoint] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
_GET_PATHS = frozenset({"/v1/models", "/health", "/version", "/metrics"})
_JSON = {"content-type": "application/json"}
_RETRY_AFTER = {"retry-after": "1"}


class SimConfig(NamedTuple):
    """What one simulator serves. `api_key` None = no key is asked for; `truth_log` None = no log."""

    parameters: EngineParameters
    seed: int
    model: str
    answer_rule: AnswerRule
    faults: tuple[FaultRule, ...] = ()
    api_key: str | None = None
    truth_log: Path | None = None


class Simulator:
    """The state behind all connections of one simulated engine."""

    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self._started_s = int(time.time())
        self.metrics = SimMetrics()
        self.runner = EngineRunner(Engine(config.parameters, config.seed), self.metrics)
        self._faults = FaultDraw(config.faults, config.seed)
        self._truth = None if config.truth_log is None else TruthLog(config.truth_log)
        fingerprint = f"servebench-sim-{SIM_VERSION}"
        self._frames = {name: Frames(name, config.model, fingerprint) for name in _GENERATION_PATHS.values()}
        self._next_seq = 0

    def handle(self, connection: Connection, request: HttpRequest) -> None:
        """Answer one request, now or when the engine has its tokens."""
        endpoint = _GENERATION_PATHS.get(request.path)
        if request.path.startswith("/v1/") and not self._authorised(request):
            self._refuse_key(connection, request, endpoint)
        elif endpoint is not None and request.method == "POST":
            self._generate(connection, request, endpoint)
        elif request.path in _GET_PATHS and request.method == "GET":
            self._get(connection, request)
        elif endpoint is not None or request.path in _GET_PATHS:
            connection.respond(request, 405, b'{"detail":"Method Not Allowed"}', _JSON)
        else:
            connection.respond(request, 404, b'{"detail":"Not Found"}', _JSON)

    def flush(self) -> None:
        """Write the truth of the requests that ended so far."""
        if self._truth is not None:
            self._truth.flush()

    def close(self) -> None:
        """Give up what is in progress and close the truth log."""
        self.runner.abort_all()
        if self._truth is not None:
            self._truth.close()

    def _authorised(self, request: HttpRequest) -> bool:
        key = self._config.api_key
        return key is None or request.headers.get("authorization") == f"Bearer {key}"

    def _refuse_key(self, connection: Connection, request: HttpRequest, endpoint: Endpoint | None) -> None:
        if endpoint is not None:
            self._keep_refused(self._draft(request), 401)
        connection.respond(request, 401, b'{"error":"Unauthorized"}', _JSON)

    def _get(self, connection: Connection, request: HttpRequest) -> None:
        if request.path == "/health":
            connection.respond(request, 200, b"", {})
        elif request.path == "/version":
            connection.respond(request, 200, msgspec.json.encode({"version": SIM_VERSION}), _JSON)
        elif request.path == "/v1/models":
            connection.respond(request, 200, self._models(), _JSON)
        else:
            kind = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
            body = render_metrics(self.metrics, self._state(), self._config.model)
            connection.respond(request, 200, body, kind)

    def _models(self) -> bytes:
        card = {
            "id": self._config.model,
            "object": "model",
            "created": self._started_s,
            "owned_by": "servebench-sim",
            "root": self._config.model,
            "parent": None,
            "max_model_len": self._config.parameters.max_model_len,
        }
        return msgspec.json.encode({"object": "list", "data": [card]})

    def _state(self) -> EngineState:
        engine = self.runner.engine
        return EngineState(
            running=engine.running,
            waiting=engine.waiting,
            kv_cache_usage=engine.blocks.used / engine.blocks.total,
            prefix_queries=engine.prefix_queries,
            prefix_hits=engine.prefix_hits,
            preemptions=engine.preemptions,
        )

    def _draft(self, request: HttpRequest) -> TruthDraft:
        seq = self._next_seq
        self._next_seq += 1
        return TruthDraft(
            seq=seq,
            request_id=request.headers.get("x-request-id"),
            path=request.path,
            t_first_byte_ns=request.t_first_byte_ns,
            t_received_ns=request.t_received_ns,
        )

    def _generate(self, connection: Connection, request: HttpRequest, endpoint: Endpoint) -> None:
        draft = self._draft(request)
        headers = {} if draft.request_id is None else {"x-request-id": draft.request_id}
        try:
            asked = self._read(request, endpoint)
        except ApiError as error:
            self._keep_refused(draft, error.status)
            connection.respond(request, error.status, error.body(), {**_JSON, **headers})
            return
        draft.stream = asked.stream
        draft.prompt_tokens = asked.prompt.tokens
        fault = self._faults.next()
        if fault is not None:
            draft.fault = fault.kind
            self.metrics.faults[fault.kind] = self.metrics.faults.get(fault.kind, 0) + 1
            if fault.kind.startswith("http-"):
                status = int(fault.kind.removeprefix("http-"))
                self._keep_refused(draft, status)
                body = error_body(status, "fault on request", kind="ServiceUnavailableError")
                connection.respond(request, status, body, {**_JSON, **_RETRY_AFTER, **headers})
                return
        self._start(self._job(asked, fault, draft, connection, request, headers))

    def _read(self, request: HttpRequest, endpoint: Endpoint) -> Generation:
        asked = read_generation(
            endpoint,
            request.body,
            model=self._config.model,
            max_model_len=self._config.parameters.max_model_len,
        )
        if asked.stream and not request.http_1_1:
            raise ApiError(505, "a stream needs HTTP/1.1", kind="Bad Request")
        return asked

    def _job(
        self,
        asked: Generation,
        fault: FaultRule | None,
        draft: TruthDraft,
        connection: Connection,
        request: HttpRequest,
        headers: dict[str, str],
    ) -> Job:
        config = self._config
        digest = blake2b(f"{config.seed}:{draft.seq}".encode(), digest_size=ID_DIGITS // 2).digest()
        return Job(
            seq=draft.seq,
            asked=asked,
            plan=plan_answer(
                asked, config.answer_rule, seed=config.seed, max_model_len=config.parameters.max_model_len
            ),
            fault=fault,
            request=request,
            connection=connection,
            draft=draft,
            frames=self._frames[asked.endpoint],
            identity=digest.hex(),
            created_s=int(time.time()),
            word_start=digest[0] % len(WORDS),
            headers=headers,
        )

    def _start(self, job: Job) -> None:
        if job.asked.stream:
            streamed = StreamedAnswer(job, self.metrics, self._ended)
            job.connection.on_lost = streamed.abort
            self.runner.submit(job, streamed)
            streamed.open()
        else:
            whole = WholeAnswer(job, self.metrics, self._ended)
            job.connection.on_lost = whole.abort
            self.runner.submit(job, whole)

    def _keep_refused(self, draft: TruthDraft, status: int) -> None:
        draft.status = status
        draft.t_head_ns = draft.t_done_ns = monotonic_ns()
        if self._truth is not None:
            self._truth.add(draft)

    def _ended(self, job: Job) -> None:
        self.runner.forget(job)
        draft, metrics = job.draft, self.metrics
        if self._truth is not None:
            self._truth.add(draft)
        reason = "abort" if draft.aborted else draft.finish_reason or "error"
        metrics.ended[reason] += 1
        if draft.finish_reason is None or draft.t_done_ns is None:
            return
        metrics.request.observe(draft.t_done_ns - draft.t_received_ns)
        metrics.request_prompt_tokens.observe(job.asked.prompt.tokens)
        metrics.request_generation_tokens.observe(draft.completion_tokens)
        times = draft.t_send_ns
        if len(times) > 1:
            metrics.per_output_token.observe((times[-1] - times[0]) // (len(times) - 1))
