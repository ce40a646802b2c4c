"""What somebody else wrote costs what its length costs: no reader takes the square of it."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import pytest
from pydantic_core import from_json
from pymysql.err import OperationalError

from app.commands.asking import Answer, address_at
from app.commands.cluster import remarks_on
from app.database.faults import CONNECTING, RefusedPluginError, poll_failure
from app.database.rows import parse_node_state
from app.database.session import suspect_seconds_in
from app.database.surroundings import group_port_in, lost_peers
from app.http.answers import policy_of
from app.http.head import REQUEST_BYTES, WORD_BYTES, read_head
from app.kinds import Kind
from app.settings.env_file import read_env_file
from app.settings.error import SettingsError
from app.settings.option_file import read_option_file
from app.settings.settings import TABLE
from app.verdict.node_state import STATUS_VARIABLES, SYSTEM_VARIABLES
from app.verdict.rules import Policy
from harness.costly import HEADS, variants

_FILE_BYTES = _ANSWER_BYTES = 1 << 16
_STATUS_BYTES = 1 << 18

_TRIES, _CLEAR_TIMES, _MOST_TIMES = 3, 2.2, 3.0
_HARMLESS_SECONDS, _PATIENCE_SECONDS = 100e-6, 3.0


class Reader(NamedTuple):
    """What reads bytes of so many at most. samples: what it is made for."""

    read: Callable[[bytes], object]
    most_bytes: int
    samples: Sequence[bytes]


def _of_file(read: Callable[[str], object], sent: bytes) -> None:
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(sent)
        read(file.name)


def _setting(kind: Kind, sent: bytes) -> None:
    kind.parse(sent.decode("latin-1"))


def _status(sent: bytes) -> None:
    answer = Answer(**from_json(sent) | {"address": address_at("db1", 1)})
    remarks_on([answer, answer])


def _rows(sent: bytes) -> None:
    parse_node_state([(sent, b"1"), *((name.encode(), sent) for name in NAMES)])


NAMES = (*STATUS_VARIABLES, *SYSTEM_VARIABLES)
READERS = {
    "a head": Reader(
        lambda sent: read_head.__wrapped__(sent, ended=True),
        REQUEST_BYTES,
        HEADS,
    ),
    "a query": Reader(
        lambda sent: policy_of.__wrapped__(sent, Policy()),
        WORD_BYTES,
        (b"available_when_donor=1&max_stall=2.5s&max_recv_queue=%31",),
    ),
    "an env file": Reader(
        partial(_of_file, read_env_file),
        _FILE_BYTES,
        (b"export MYSQL_HOST='db1' # x\nMYSQL_PORT = \"33\\n06\"\n#\n",),
    ),
    "an option file": Reader(
        partial(_of_file, read_option_file),
        _FILE_BYTES,
        (b"[client]\nhost = 'db1' # x\nloose-user=\"a b\"\n; x\n!x\n",),
    ),
    **{
        f"the setting {row.name}": Reader(
            partial(_setting, row.kind),
            _FILE_BYTES,
            (row.typed.encode() or b"10.0.0.0/8 fd00::7", b"1.5ms"),
        )
        for row in {row.kind.must_be: row for row in TABLE.values()}.values()
    },
    "the provider's options": Reader(
        lambda sent: (suspect_seconds_in(sent), group_port_in(sent)),
        _ANSWER_BYTES,
        (b"evs.suspect_timeout = P1DT2H3M4.5S; gmcast.listen_addr = tcp://[::]:4567;",),
    ),
    "rows": Reader(_rows, _ANSWER_BYTES, (b"4", b"db1:3306,[fd00::2]:3306,,")),
    "an error of the server": Reader(
        lambda sent: poll_failure(
            OperationalError(1226, sent.decode("latin-1")), None, CONNECTING, 1.0
        ),
        _ANSWER_BYTES,
        (b"User 'x' has exceeded the 'max_queries_per_hour' resource",),
    ),
    "a plugin's name": Reader(
        lambda sent: poll_failure(RefusedPluginError(sent), None, CONNECTING, 1.0),
        _ANSWER_BYTES,
        (b"client_ed25519",),
    ),
    "the table of connections": Reader(
        lambda sent: lost_peers(sent.decode("latin-1"), 4567),
        _STATUS_BYTES,
        (
            (
                b"  0: 0100007F:11D7 00000000:0000 0A 00000000:00000000 00:00000000 00000000"
                b"     0        0 1 1 0 100 0 0 10 0\n"
            ),
        ),
    ),
    "the status of another service": Reader(
        _status,
        _STATUS_BYTES,
        (
            (
                b'{"available": true, "reason": "synced", "node":'
                b' {"wsrep_incoming_addresses": "a:1,b:1", "wsrep_local_index": 1}}'
            ),
        ),
    ),
    "an address": Reader(
        lambda sent: address_at(sent.decode("latin-1"), 1),
        _FILE_BYTES,
        (b"[fd00::1]:9200",),
    ),
}


def _seconds(reader: Reader, sent: bytes) -> float:
    """Return the time that it takes to read this."""
    began = time.thread_time()
    with suppress(ValueError, SettingsError, TypeError, AttributeError):
        reader.read(sent)
    return time.thread_time() - began


def _times(reader: Reader, less: bytes, more: bytes) -> float:
    """Return how many times longer more takes, or 0 if that is harmless.

    By the shortest of times: other work only adds to them.
    """
    shortest = [math.inf, math.inf]
    ends_at = time.monotonic() + _PATIENCE_SECONDS
    for tries in count(1):
        for index, sent in enumerate((less, more)):
            shortest[index] = min(shortest[index], _seconds(reader, sent))
        if shortest[1] <= _HARMLESS_SECONDS:
            return 0.0
        times = shortest[1] / shortest[0]
        is_clear = times <= (_CLEAR_TIMES if tries < _TRIES else _MOST_TIMES)
        if is_clear or time.monotonic() > ends_at:
            break
    return times


@pytest.mark.parametrize(
    ("name", "share"),
    [
        # A whole file takes a tenth of a second each time.
        *((name, 32 if name.endswith(" file") else 1) for name in READERS),
        *(
            pytest.param(name, 1, marks=pytest.mark.long)
            for name in READERS
            if name.endswith(" file")
        ),
    ],
)
def test_to_read_twice_as_much_takes_at_most_three_times_as_long(
    name: str, share: int
) -> None:
    reader = READERS[name]
    half = reader.most_bytes // share // 2
    for less, more in zip(
        variants(reader.samples, half), variants(reader.samples, 2 * half), strict=True
    ):
        assert _times(reader, less, more) <= _MOST_TIMES, more[:200]
