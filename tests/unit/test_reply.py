"""What a server replies to statements, cut and spoilt in each way: rows, an error, or a reason."""

import asyncio
from collections.abc import Iterable

import pytest
from pymysql.err import MySQLError

from app.database.faults import poll_failure
from app.database.reply import MOST_BYTES, Reply
from app.verdict.node_state import Rows
from app.verdict.reason import Reason
from tests import fake_mysql as fake

pytestmark = pytest.mark.anyio

Answer = Rows | MySQLError
ROWS = ((b"a", b"1"), (b"b", None), (b"c", b"x" * 300), (b"d", b"of"))
_CELLS = (
    b"\x01a\x011",
    b"\x01b\xfb",
    b"\x01c\xfc\x2c\x01" + b"x" * 300,
    b"\x01d\x02of",
)
DEFINITION = b"\x03def"
MORE_RESULTS = b"\x08\0"


def packets(*payloads: bytes) -> bytes:
    """Make one answer of these packets, numbered from 1."""
    numbered = (fake.packet(at % 256, one) for at, one in enumerate(payloads, 1))
    return b"".join(numbered)


def rows_of(*cells: bytes, columns: int = 2) -> bytes:
    """Make an answer with so many columns and these rows."""
    definitions = [DEFINITION] * columns
    return packets(bytes([columns]), *definitions, fake.EOF, *cells, fake.EOF)


async def read(pieces: Iterable[bytes], statements: int = 1) -> list[Answer]:
    """Return what a server answers in these pieces. Raises what a poll is told."""
    reader = asyncio.StreamReader()
    reply = Reply(reader)

    async def answers() -> list[Answer]:
        found = [await reply.answer() for _ in range(statements)]
        reply.check_end()
        return found

    asking = asyncio.create_task(answers())
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    return await asking


async def reason_of(pieces: Iterable[bytes], statements: int = 1) -> Reason:
    """Return why such an answer is none."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 (any)
        await read(pieces, statements)
    return poll_failure(raised.value, None, "reading", 0.8).reason


async def test_an_answer_may_be_cut_anywhere() -> None:
    reply = rows_of(*_CELLS) + packets(fake.OK) + rows_of()
    expected = [ROWS, (), ()]
    for at in range(1, len(reply)):
        assert await read([reply[:at], reply[at:]], 3) == expected
    assert await read((bytes([one]) for one in reply), 3) == expected


async def test_an_answer_of_many_rows_is_read() -> None:
    (rows,) = await read([rows_of(*[_CELLS[0]] * 1000)])
    assert rows == (ROWS[0],) * 1000


@pytest.mark.parametrize("before", [(), (b"\x01", DEFINITION, fake.EOF, b"\x01a")])
async def test_an_error_stands_for_its_own_statement_alone(
    before: tuple[bytes, ...],
) -> None:
    reply = packets(*before, fake.error(1047)) + rows_of(*_CELLS)
    error, rows = await read([reply], 2)
    assert isinstance(error, MySQLError)
    assert (error.args[0], rows) == (1047, ROWS)


WRONG = Reason.ERROR
LOST = Reason.CONNECTION_LOST


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (rows_of(*_CELLS)[:-1], LOST),
        # A row of 16 MB, and of all that may be sent: from its header.
        (rows_of()[:-9] + b"\xff\xff\xff\x05", WRONG),
        (rows_of(*[b"\x00" * 2] * (MOST_BYTES // 6)), WRONG),
        # More or fewer cells than columns, columns than definitions, or bytes than their length.
        (rows_of(b"\x01a"), WRONG),
        (rows_of(b"\x01a\x01b\x01c"), WRONG),
        (rows_of(b"\x01a\x02b"), WRONG),
        (rows_of(b"\x01a\xfd\xff"), WRONG),
        (rows_of(b"\x01a\xfe" + b"\xff" * 8), WRONG),
        (packets(b"\x02", DEFINITION, fake.EOF), WRONG),
        (packets(b"\x01", DEFINITION, DEFINITION, fake.EOF), WRONG),
        (packets(b"\x02\x01"), WRONG),
        (packets(b"\xfc\xff\xff"), WRONG),
        # A file that the server wants, a plugin that it asks for, and nothing at all.
        (packets(b"\xfb/etc/passwd"), WRONG),
        (packets(b"\xfb"), WRONG),
        (packets(fake.auth_switch("mysql_clear_password")), WRONG),
        (packets(b""), WRONG),
        (packets(b"\x00"), WRONG),
        (packets(b"\xff\x17"), WRONG),
        # A further result.
        (packets(fake.OK[:3] + MORE_RESULTS + b"\0\0"), WRONG),
        (packets(b"\x01", DEFINITION, fake.EOF, fake.EOF[:3] + MORE_RESULTS), WRONG),
        # A wrong number, and that with which MySQL shuts down.
        (fake.packet(2, fake.OK), WRONG),
        (fake.packet(0, fake.error(1053)), LOST),
        # An error of the client library, which no server sends.
        (packets(fake.error(2013)), LOST),
    ],
)
async def test_what_is_no_answer_is_a_reason(reply: bytes, reason: Reason) -> None:
    assert await reason_of([reply]) is reason
    assert await reason_of(bytes([one]) for one in reply) is reason


async def test_a_second_answer_is_refused() -> None:
    assert await reason_of([2 * packets(fake.OK)]) is WRONG


async def test_a_byte_that_is_wrong_has_no_other_end() -> None:
    reply = rows_of(*_CELLS[:2]) + packets(fake.OK)
    for at in range(len(reply)):
        for value in (0, 1, 2, 5, 0x7F, 0xFB, 0xFC, 0xFE, 0xFF):
            spoilt = reply[:at] + bytes([value]) + reply[at + 1 :]
            reading = asyncio.create_task(read([spoilt], 2))
            await asyncio.wait([reading])
            fault = reading.exception()
            if fault is None:
                assert len(reading.result()) == 2
            else:
                assert not isinstance(fault, AssertionError)
                assert poll_failure(fault, None, "reading", 0.8).detail
