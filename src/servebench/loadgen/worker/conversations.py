"""Know conversations: later turns follow the answer before them, behind the history they have made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import gevent

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask, Message
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import Permit
from servebench.loadgen.worker.requester import Requester


@dataclass(slots=True, kw_only=True)
class History:
    """What was said in one conversation so far; stays empty where turns are whole in themselves (`kept` false)."""

    requester: Requester
    kept: bool
    said: list[Message] = field(default_factory=list)

    def heard(self, ask: Ask, answer: Answer) -> None:
        """Note a turn and what the server really answered."""
        if self.kept:
            self.said += [*self.requester.messages(ask), Message("assistant", answer.text or "")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Runs each conversation in a greenlet of its own. `history` = turns are sent behind the real answers."""

    requester: Requester
    clock: RunClock
    permit: Permit
    history: bool
    on_failure: Callable[[BaseException], None]

    def launch(self, asks: Sequence[Ask], body: bytes) -> None:
        """Begin a conversation, or send a single request; called by the dispatcher, does not block."""
        if len(asks) == 1:
            self.requester.launch(asks[0], body)
        else:
            gevent.spawn(self._run, asks, body)

    def _run(self, asks: Sequence[Ask], body: bytes) -> None:
        try:
            with self.requester.busy():
                self._turns(asks, body)
        except Exception as error:  # noqa: BLE001 - top of a greenlet: the harness failed, the run ends
            self.on_failure(error)

    def _turns(self, asks: Sequence[Ask], body: bytes) -> None:
        history = History(requester=self.requester, kept=self.history)
        end_ns = 0
        for number, planned in enumerate(asks):
            ask = planned
            if number:
                ask = planned._replace(intended_ns=end_ns + (planned.think_ns or 0))
                epoch_ns = self.clock.epoch_monotonic_ns
                due = self.permit.sleep_until(ask.intended_ns or 0, epoch_ns)
                if not (due and self.permit.await_lease(epoch_ns)):
                    self._give_up(asks[number:], Outcome.CANCELLED, "run_stopped")
                    return
                body = self.requester.render(ask, history.said)
            record = self.requester.perform(ask, body)
            if record.answer.outcome is not Outcome.OK:
                self._give_up(asks[number + 1 :], Outcome.SKIPPED, "earlier_turn_failed")
                return
            end_ns = record.answer.end_ns - self.clock.epoch_monotonic_ns
            history.heard(ask, record.answer)

    def _give_up(self, asks: Sequence[Ask], outcome: Outcome, error_class: str) -> None:
        for ask in asks:
            self.requester.leave_out(ask, outcome, error_class)
