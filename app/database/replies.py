"""Reads what a server replies to statements: bytes in, rows or errors out, or a fault.

The driver's reader takes two coroutines for each of a poll's forty packets. This one reads them
from one buffer. It knows the text protocol without CLIENT_DEPRECATE_EOF, as the driver asks for it:
https://mariadb.com/kb/en/result-set-packets/
"""

import asyncio
from collections.abc import Generator

from pymysql.constants import CR, SERVER_STATUS
from pymysql.err import MySQLError, OperationalError, raise_mysql_exception
from pymysql.protocol import MysqlPacket, OKPacketWrapper

from app.database.faults import UnaskedBytesError, is_error_of_server
from app.verdict.node_state import Rows

MOST_BYTES = 64 * 1024
"""In a login, or in reply to statements sent together."""

_HEADER_BYTES = 4  # three of the length, and one of the packet's number
_OK, _NULL, _EOF, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_EOF_BYTES = 5
_MOST_COLUMNS = 250  # their number is one byte
_TWO_BYTES = 0xFC  # of length; with more, a cell would not fit

Answers = list[Rows | MySQLError]


class Replies(asyncio.Protocol):
    """Takes over a connection that has logged in, and forwards only its end.

    is_due: whether a reply is. fault: why there will be none.
    """

    is_due = False
    fault: Exception | None = None
    _queries = _same = b""
    _at: int
    _number: int
    _waiter: asyncio.Future[None] | None = None

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._before = transport.get_protocol()
        transport.set_protocol(self)

    async def to(self, queries: bytes, count: int) -> Answers:
        """Send so many statements, and return their answers. Raises anything.

        If the bytes are those of the reply before to the same statements, so is the list.
        If this is cancelled, the reply is read all the same, and dropped.
        """
        if self.fault:
            raise self.fault
        if queries != self._queries:
            self._queries, self._same = queries, b""
        self._answers: Answers = []
        self._count = count
        self._received = bytearray()
        self._at = 0
        self._begin_answer()
        self.is_due = True
        self._transport.write(queries)
        await self.end()
        if self.fault:
            raise self.fault
        return self._answers

    async def end(self) -> None:
        """Wait until no reply is due."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def data_received(self, data: bytes) -> None:
        """Read the packets that are complete."""
        try:
            self._read(data)
        except Exception as fault:  # noqa: BLE001 (whatever the server sends)
            self._stop(fault)
            # It may send without end.
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it was closed."""
        self._stop(exc or ConnectionResetError())
        self._before.connection_lost(exc)

    def _read(self, data: bytes) -> None:
        if not self.is_due:
            raise UnaskedBytesError
        self._received += data
        if self._same.startswith(self._received):
            if len(self._received) == len(self._same):
                self._answers = self._same_answers
                self._wake()
            return
        while self.is_due and (packet := self._packet()) is not None:
            self._take(packet)

    def _packet(self) -> bytes | None:
        """Return the next packet without its header; None if it has not arrived."""
        begin = self._at + _HEADER_BYTES
        if len(self._received) < begin:
            return None
        end = begin + int.from_bytes(self._received[self._at : begin - 1], "little")
        number = self._received[begin - 1]
        if end > MOST_BYTES:
            raise UnaskedBytesError
        if number != self._number % 256:
            # MySQL shuts down with a packet that has no number.
            raise ValueError(number) if number else OperationalError(CR.CR_SERVER_LOST)
        if len(self._received) < end:
            return None
        self._at = end
        self._number += 1
        return bytes(self._received[begin:end])

    def _take(self, packet: bytes) -> None:
        try:
            if packet[0] == _ERROR:
                raise_mysql_exception(packet)
            self._reading.send(packet)
        except StopIteration as end:
            self._end_answer(end.value)
        except MySQLError as error:
            if not is_error_of_server(error):
                raise
            self._end_answer(error)

    def _end_answer(self, answer: Rows | MySQLError) -> None:
        self._answers.append(answer)
        if len(self._answers) < self._count:
            self._begin_answer()
        elif self._at < len(self._received):
            raise UnaskedBytesError
        else:
            self._same, self._same_answers = bytes(self._received), self._answers
            self._wake()

    def _begin_answer(self) -> None:
        # The packets of each answer are numbered from 1.
        self._number = 1
        self._reading = _rows()
        next(self._reading)

    def _stop(self, fault: Exception) -> None:
        self.fault = self.fault or fault
        self._wake()

    def _wake(self) -> None:
        self.is_due = False
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


def _rows() -> Generator[None, bytes, Rows]:
    """Take the packets of one answer; return its rows. Raises what is no such packet."""
    first = yield
    if first[0] == _OK:
        done = OKPacketWrapper(MysqlPacket(first, "ascii"))
        _check_last(done.server_status)
        return ()
    (columns,) = first
    if columns > _MOST_COLUMNS:
        raise ValueError(columns)
    # What the server calls them, and the end of that.
    for left in range(columns, -1, -1):
        if _is_eof((yield)) != (left == 0):
            raise ValueError(columns)
    rows = []
    while not _is_eof(packet := (yield)):
        rows.append(_cells(packet, columns))
    _check_last(int.from_bytes(packet[3:], "little"))
    return tuple(rows)


def _is_eof(packet: bytes) -> bool:
    return packet[0] == _EOF and len(packet) == _EOF_BYTES


def _check_last(status: int) -> None:
    # A further result would be taken for the answer to the next statement.
    if status & SERVER_STATUS.SERVER_MORE_RESULTS_EXISTS:
        raise UnaskedBytesError


def _cells(packet: bytes, columns: int) -> tuple[bytes | None, ...]:
    cells: list[bytes | None] = []
    at = 0
    for _ in range(columns):
        length = packet[at]
        at += 1
        if length == _NULL:
            cells.append(None)
            continue
        if length > _TWO_BYTES:
            raise ValueError(length)
        if length == _TWO_BYTES:
            length = int.from_bytes(packet[at : at + 2], "little")
            at += 2
        cells.append(packet[at : at + length])
        at += length
    if at != len(packet):
        raise ValueError(columns)
    return tuple(cells)
