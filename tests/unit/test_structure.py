"""How large a file and a function may grow: past these limits it is two things."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 60
SOURCES = sorted((ROOT / "src" / "servebench").rglob("*.py"))


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the length in lines of each function of a module, decorators and docstring left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            signature = body[0].lineno - node.lineno if body is node.body else node.body[0].lineno - node.lineno
            yield node.name, (body[-1].end_lineno or 0) - body[0].lineno + 1 + signature


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_a_source_file_and_its_functions_stay_small(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= FILE_LINES
    assert [name for name, lines in functions(source) if lines > FUNCTION_LINES] == []


def test_the_counter_sees_a_long_function() -> None:
    body = "\n".join(f"    x = {n}" for n in range(70))
    assert list(functions(f'def long():\n    """Doc."""\n{body}\n')) == [("long", 71)]


def test_there_are_sources_to_check() -> None:
    assert len(SOURCES) > 20


def test_a_module_says_what_it_knows_first() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if not (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").startswith("Know ")
    ]
    assert silent == []
