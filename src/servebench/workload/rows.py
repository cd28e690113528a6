"""Know recorded requests in order of time: what every reader of a trace gives."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from servebench.core.errors import InputError

MAX_FAULTS = 20
MAX_TOKENS = 2**31 - 1

Ints = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of text that prompts are made of: those of row r are `first[r]` to `last[r]`, in order.

    Equal `ids` are equal texts. `tokens` is how long each is; the last of a row may be cut by the row's input length.
    """

    first: Ints
    last: Ints
    ids: Ints
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows as they stand in a file. `time_ns` counts from any zero. `session` is -1 where a row belongs to none."""

    time_ns: Ints
    input_tokens: Tokens
    output_tokens: Tokens
    session: Tokens | None = None
    blocks: Blocks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded requests in order of time.

    `offset_ns` int64, after the first kept row; `input_tokens` and `output_tokens` int32; all of one length.
    `left_out_ns` int64: times of the rows without input or output, which are not among the rows; negative before the
    first kept one. `session` numbers conversations, -1 = a row that belongs to none; None = the format has none.
    `end_ns` is where a trace ends that knows it; None: with its last row.
    """

    path: str
    offset_ns: Ints
    input_tokens: Tokens
    output_tokens: Tokens
    left_out_ns: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    steps_back: int = 0
    session: Tokens | None = None
    blocks: Blocks | None = None
    end_ns: int | None = None

    def __len__(self) -> int:
        return len(self.offset_ns)


def in_order(rows: Rows, source: str, empty_output: int | None = None) -> Trace:
    """Return rows as a trace: sorted stably, those without input or output tokens left out and counted.

    `empty_output` keeps rows without output, with that many tokens. Raises InputError where nothing is left.
    """
    steps_back = int(np.count_nonzero(rows.time_ns[1:] < rows.time_ns[:-1]))
    order: Ints | slice = np.argsort(rows.time_ns, kind="stable") if steps_back else slice(None)
    times, inputs, outputs = rows.time_ns[order], rows.input_tokens[order], rows.output_tokens[order]
    if empty_output is not None:
        outputs = np.where(outputs == 0, np.int32(empty_output), outputs)
    usable = (outputs > 0) & (inputs > 0)
    if not usable.any():
        msg = f"{source} has no usable rows ({len(usable)} rows, none with input and output tokens)"
        raise InputError(msg)
    # A trace in order of which all is used, as most are, is taken as it stands: one of millions of rows is not copied.
    kept: Bools | slice = slice(None) if usable.all() else usable
    zero = times[kept][0]
    return Trace(
        path=source,
        offset_ns=times[kept] - zero,
        input_tokens=inputs[kept],
        output_tokens=outputs[kept],
        left_out_ns=times[~usable] - zero,
        steps_back=steps_back,
        session=None if rows.session is None else rows.session[order][kept],
        blocks=None if rows.blocks is None else _blocks_of(rows.blocks, order, kept),
    )


def _blocks_of(blocks: Blocks, order: Ints | slice, kept: Bools | slice) -> Blocks:
    first, last = blocks.first[order][kept], blocks.last[order][kept]
    return Blocks(first=first, last=last, ids=blocks.ids, tokens=blocks.tokens)
