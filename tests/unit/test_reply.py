"""What a server replies to statements, cut and spoilt in each way: rows, an error, or a reason."""

import asyncio
import ssl
from collections.abc import Iterable

import pytest
from pymysql.err import MySQLError

from app.database.faults import poll_failure
from app.database.reply import MOST_BYTES, Answers, Reply
from tests import fake_mysql as fake

pytestmark = pytest.mark.anyio

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


async def read(pieces: Iterable[bytes], statements: int = 1) -> Answers:
    """Return what a server answers in these pieces. Raises what a poll is told."""
    reader = asyncio.StreamReader()
    asking = asyncio.create_task(Reply(reader).answers(statements))
    for piece in pieces:
        reader.feed_data(piece)
        await asyncio.sleep(0)
    reader.feed_eof()
    return await asyncio.wait_for(asking, 30)


async def words_for(pieces: Iterable[bytes], statements: int = 1) -> str:
    """Return why such an answer is none."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 (any)
        await read(pieces, statements)
    return poll_failure(raised.value, None, "reading", 0.8).detail


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


WRONG = "the server sent an answer that is not MySQL while reading"
MORE = "the server sent more than it was asked for while reading"
LOST = "the server closed the connection while reading (error 2013)"
OTHER = "the server answered with an error while reading (error {})"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (rows_of(*_CELLS)[:-1], LOST),
        # A row of 16 MB, and of all that may be sent: from its header.
        (rows_of()[:-9] + b"\xff\xff\xff\x05", MORE),
        (rows_of(*[b"\x00" * 2] * (MOST_BYTES // 6)), MORE),
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
        (packets(b"\xff"), WRONG),
        (packets(b"\xff\x17"), OTHER.format(23)),
        # A further result.
        (packets(fake.OK[:3] + MORE_RESULTS + b"\0\0"), MORE),
        (packets(b"\x01", DEFINITION, fake.EOF, fake.EOF[:3] + MORE_RESULTS), MORE),
        # A wrong number, and that with which MySQL shuts down.
        (fake.packet(2, fake.OK), WRONG),
        (fake.packet(0, fake.error(1053)), LOST),
        # An error of the client library, which no server sends.
        (packets(fake.error(2013)), LOST),
    ],
)
async def test_what_is_no_answer_is_a_reason(reply: bytes, words: str) -> None:
    assert await words_for([reply]) == words
    assert await words_for(bytes([one]) for one in reply) == words


async def test_an_error_has_any_number_and_any_text() -> None:
    text = b"\xff\xff\xff#\xe9\xe9\xe9\xe9\xe9\xe9"
    (error,) = await read([packets(text)])
    assert isinstance(error, MySQLError)
    assert error.args[0] == 0xFFFF


def fault_of_tls() -> Exception:
    """Return what the TLS library says to bytes that are none of its."""
    received = ssl.MemoryBIO()
    received.write(b"something else")
    session = ssl.create_default_context().wrap_bio(
        received, ssl.MemoryBIO(), server_hostname="db"
    )
    with pytest.raises(ssl.SSLError) as raised:
        session.do_handshake()
    return raised.value


async def test_a_connection_that_fails_is_told_with_its_cause() -> None:
    for fault, words in (
        (ConnectionResetError(104, "reset"), LOST),
        (TimeoutError(110, "a lost peer"), LOST),
        (fault_of_tls(), "no TLS connection to the server: "),
    ):
        reader = asyncio.StreamReader()
        reader.set_exception(fault)
        with pytest.raises(MySQLError) as raised:
            await Reply(reader).answers(1)
        assert poll_failure(raised.value, None, "reading", 0.8).detail.startswith(words)


async def test_a_second_answer_is_refused() -> None:
    assert await words_for([2 * packets(fake.OK)]) == MORE


async def test_a_byte_that_is_wrong_has_no_other_end() -> None:
    reply = rows_of(*_CELLS[:2]) + packets(fake.OK)
    for at in range(len(reply)):
        for value in (0, 1, 2, 5, 0x7F, 0xFB, 0xFC, 0xFE, 0xFF):
            spoilt = reply[:at] + bytes([value]) + reply[at + 1 :]
            (found,) = await asyncio.gather(read([spoilt], 2), return_exceptions=True)
            if isinstance(found, BaseException):
                words = poll_failure(found, None, "reading", 0.8).detail
                assert words.startswith((WRONG, MORE, LOST, OTHER[:32])), found
            else:
                rows, _ = found
                assert isinstance(rows, MySQLError) or {*map(len, rows)} <= {1, 2}
