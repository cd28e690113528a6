"""Know what the public API is: `open_run` and the version."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from servebench.analysis.run import Run, open_run

__all__ = ["Run", "__version__", "open_run"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - module attribute protocol of PEP 562
    """Load the pandas-based reader on first use, so that workers and `--help` never pay for it."""
    if name in {"open_run", "Run"}:
        from servebench.analysis import run

        return getattr(run, name)
    msg = f"module 'servebench' has no attribute {name!r}"
    raise AttributeError(msg)
