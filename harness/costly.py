"""Texts whose reading may cost more than their length."""

import time
from collections.abc import Iterator, Sequence
from itertools import combinations, cycle, product
from string import ascii_letters, digits

from app.http.head import REQUEST_BYTES, read_head

HEADS = (
    b"GET http://db_1:9200/readyz?max_stall=2#x HTTP/1.1\r\nHost: www\r\n\r\n",
    b"GET http://db_1:9200/ a b\r\n\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nOPTIONS * HTTP/1.0\n\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12) + b"GET /\r\n",
)

_CANDIDATES = 20
_WORDS = (ascii_letters + digits).encode()
_RUNS = (
    *(b"a", b"0", b"9", b"_", b"-", b".", b",", b":", b";", b"/", b"?", b"&", b"="),
    *(b"#", b"%", b"%41", b'"', b"'", b"\\", b"[", b"]", b"{", b"(", b"!", b"@"),
    *(b" ", b"\t", b"\r", b"\n", b"\r\n", b"\n\r", b"\0", b"\x16", b"\xff", b"\xc3"),
    *(b"a ", b"a=1&", b"a:b\r\n", b"x\n", b"1.", b"\\n", b"$x", b"${x", b"9M", b"T"),
)


def variants(samples: Sequence[bytes], length: int) -> Iterator[bytes]:
    """Yield texts of so many bytes: each run at each place of each sample, and each part of it."""
    for sample in samples:
        # Between two bytes of different kinds.
        in_word = [byte in _WORDS for byte in sample]
        cuts = [
            cut
            for cut in range(len(sample) + 1)
            if cut in (0, len(sample)) or not (in_word[cut - 1] and in_word[cut])
        ]
        parts = [sample[begin:end] for begin, end in combinations(cuts, 2)]
        for cut, run in [*product(cuts, _RUNS), *zip(cycle(cuts), parts, strict=False)]:
            repeated = run * ((length - len(sample)) // len(run))
            yield sample[:cut] + repeated + sample[cut:]


def costliest_head() -> bytes:
    """Return the head of 8 KiB that takes longest to read, of all variants."""
    longest = sorted(variants(HEADS, REQUEST_BYTES), key=head_seconds)[-_CANDIDATES:]
    return max(longest, key=lambda head: min(head_seconds(head) for _ in range(20)))


def head_seconds(head: bytes) -> float:
    """Return the CPU time that it takes to read a head that is not in the cache."""
    began = time.thread_time()
    read_head.__wrapped__(head)
    return time.thread_time() - began
