r"""Time answers that are made of several steps: search, ask the model, check what came.

    python locustfiles/retrieval.py 9100 &
    servebench run --locustfile locustfiles/rag.py --url http://127.0.0.1:8000 --rate 4 --duration 30s

`servebench run` says when each question is asked and which, and keeps the steps in the run. The file runs under Locust
alone too; then it asks its own questions, and records into the folder SPANS, one for each run:

    SPANS=runs/rag locust -f locustfiles/rag.py --headless -u 4 -r 4 -t 30s --host http://127.0.0.1:8000
    servebench spans runs/rag --html rag.html

RETRIEVAL is where the search is, MODEL the name to ask for (default sim-1, that of `servebench sim`).
"""

import os

from locust import FastHttpUser, constant, events, task
from locust.env import Environment

from servebench.loadgen.spans import Spans, planned

RETRIEVAL = os.environ.get("RETRIEVAL", "http://127.0.0.1:9100")
MODEL = os.environ.get("MODEL", "sim-1")
QUESTIONS = (
    "What does an open loop load generator do?",
    "When is the time to first token over?",
    "What does a prefix cache keep?",
)

recorders: dict[str, Spans] = {}


def begin(environment: Environment, **_: object) -> None:
    """Open the recorder of this process; Locust's own statistics show the answers too."""
    recorders["spans"] = Spans(os.environ.get("SPANS", "runs/rag"), fire=environment.events.request.fire)


def end(**_: object) -> None:
    """Write what is left."""
    recorders["spans"].close()


events.init.add_listener(begin)
events.quitting.add_listener(end)


class Asker(FastHttpUser):
    """Asks one question after the other."""

    wait_time = constant(0.1)
    asked = 0

    @task
    def ask(self) -> str:
        """Search, ask, check; what is returned is the answer."""
        asked = planned()
        question = asked.prompt if asked else QUESTIONS[self.asked % len(QUESTIONS)]
        self.asked += 1
        with recorders["spans"].answer("question") as answer:
            with answer.span("retrieval"):
                found = self.client.get(f"{RETRIEVAL}/search", params={"q": question}, name="search").json()
            with answer.span("prompt"):
                prompt = "\n".join([*found["passages"], question])
            with answer.span("model"):
                body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": 40}
                reply = self.client.post("/v1/chat/completions", json=body, name="model").json()
            with answer.span("check"):
                text = str(reply["choices"][0]["message"]["content"])
                if not text.strip():
                    msg = "the answer is empty"
                    raise ValueError(msg)
        return text
