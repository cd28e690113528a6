"""Know the words that simulated answers are made of: one word, one token, one event."""

_WORDS = """
anchor apple arrow autumn bamboo basket beacon birch blanket blossom bottle branch breeze bridge bronze brook button
cabin candle canyon carpet castle cedar cellar chalk cherry circle cliff cloud clover coast copper coral corner cotton
crane creek crystal curtain daisy dawn delta desert dock dolphin door dragon drum dune eagle earth east echo ember
engine evening fabric falcon farm feather fern ferry field flame flint flower fog forest fountain fox frost garden gate
glacier glass gold grain granite grass gravel hammer harbor hawk hazel hill honey horizon house ice iron island ivory
jacket jasmine kettle lake lamp lantern leaf lemon light lily linen maple marble meadow mill mint mirror moon moss
mountain needle night north oak ocean olive orchard otter owl paper path pearl pebble
"""

WORDS: tuple[str, ...] = tuple(_WORDS.split())


def answer_words(start: int, count: int) -> list[str]:
    """Return the first `count` words of the answer that starts at position `start` of the vocabulary."""
    return [WORDS[(start + index) % len(WORDS)] for index in range(count)]
