"""Token counts beside the vocabularies that define them."""

import base64
import hashlib
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from servebench.core.errors import InputError
from servebench.core.outcomes import CountedSource, Outcome
from servebench.core.records import Answer
from servebench.workload.counting import (
    BLOCK_CHARS,
    Estimate,
    O200k,
    TokenizerFile,
    blocks,
    count_answer,
    o200k_ranks,
    token_counter,
)


@pytest.fixture(scope="module")
def o200k() -> O200k:
    return O200k()


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Write a tokenizer whose tokens are words, and which puts a special token before each text."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "[BOS]": 1, "one": 2, "two": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_the_packed_vocabulary_is_the_one_that_openai_publishes() -> None:
    lines = (b"%s %d\n" % (base64.b64encode(piece), rank) for piece, rank in o200k_ranks().items())
    # The SHA-256 that tiktoken pins for o200k_base.
    pinned = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
    assert hashlib.sha256(b"".join(lines)).hexdigest() == pinned


# By `tiktoken.get_encoding("o200k_base")` of tiktoken 0.14.0 with the published file in its cache.
KNOWN = {
    "": 0,
    "hello world": 2,
    "Grüße aus Köln 🚲": 7,
    "漢字かな交じり文": 7,
    "def f(x):\n    return x**2\n": 10,
    "1234567890": 4,
    "<|endoftext|>": 7,
}


def test_shakespeare_has_the_tokens_that_three_other_packages_count(o200k: O200k) -> None:
    text = resources.files("servebench.workload").joinpath("data", "text", "shakespeare_slice.txt").read_text("utf-8")
    assert o200k.count(text) == 103_114


@pytest.mark.parametrize("text", KNOWN)
def test_single_texts_have_the_tokens_of_the_published_vocabulary(o200k: O200k, text: str) -> None:
    assert o200k.count(text) == KNOWN[text]


@pytest.mark.parametrize("text", ["a", " ", "\n", "漢", "\ud800", "ab "], ids=ascii)
def test_texts_without_end_or_blank_are_counted_in_blocks(o200k: O200k, text: str) -> None:
    long = text * (3 * BLOCK_CHARS)
    assert 0 < o200k.count(long) <= 3 * len(long)


@given(text=st.text(st.sampled_from("a \n"), max_size=300).map(lambda text: text * (BLOCK_CHARS // 100)))
def test_blocks_are_bounded_and_together_the_text(text: str) -> None:
    found = list(blocks(text))
    assert "".join(found) == text
    assert all(0 < len(block) <= BLOCK_CHARS for block in found)


def test_a_tokenizer_file_counts_its_own_tokens_and_no_special_ones(words: Path) -> None:
    counter = token_counter(words)
    assert counter.source is CountedSource.TOKENIZER
    assert [counter.count(text) for text in ("", "one", "one two  three")] == [0, 1, 3]


@pytest.mark.parametrize("content", [None, "{}", "no JSON"], ids=["missing", "empty object", "text"])
def test_a_file_that_is_no_tokenizer_is_the_users_fault_with_a_way_out(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json") as caught:
        TokenizerFile(path)
    assert str(path) in str(caught.value)


def test_without_a_file_the_packaged_vocabulary_counts() -> None:
    assert token_counter(None).source is CountedSource.O200K


def test_without_tiktoken_the_estimate_counts() -> None:
    code = (
        "import sys; sys.modules['tiktoken'] = None\n"
        "from servebench.workload.counting import token_counter\n"
        "counter = token_counter(None); print(counter.source, counter.count('hello world'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["estimate", "2"]


def test_counting_loads_nothing_before_a_counter_is_made() -> None:
    code = "import sys, servebench.workload.counting; print('tiktoken' in sys.modules, 'tokenizers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_all_that_an_answer_generated_is_counted(words: Path) -> None:
    counter = TokenizerFile(words)
    answer = Answer(outcome=Outcome.OK, end_ns=1, text="one two", asides=("one", "two two two"))
    assert count_answer(counter, answer) == 6
    assert count_answer(counter, Answer(outcome=Outcome.OK, end_ns=1, text="")) == 0


def test_an_answer_whose_text_was_not_kept_has_no_count() -> None:
    assert count_answer(Estimate(), Answer(outcome=Outcome.OK, end_ns=1)) is None
