"""Reads what a server replies to statements: rows, an error, or what is neither.

The driver makes an object and awaits three coroutines for each of a poll's forty packets. It does
not ask for CLIENT_DEPRECATE_EOF, so that such packets end the columns and the rows:
https://mariadb.com/kb/en/result-set-packets/
"""

import asyncio

from pymysql.constants import CR, SERVER_STATUS
from pymysql.err import MySQLError, OperationalError
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


class Reply:
    """What comes for statements that were sent together."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._received = bytearray()
        self._at = self._number = 0

    async def answers(self, count: int) -> Answers:
        """Return the rows for each statement, or the server's error. Raises anything."""
        answers = [await self._answer() for _ in range(count)]
        if self._at < len(self._received):
            raise UnaskedBytesError
        return answers

    async def _answer(self) -> Rows | MySQLError:
        # The packets of each are numbered from 1.
        self._number = 0
        try:
            return await self._rows()
        except MySQLError as fault:
            if not is_error_of_server(fault):
                raise
            return fault

    async def _rows(self) -> Rows:
        first = await self._packet()
        if first[0] == _OK:
            _check_last(OKPacketWrapper(MysqlPacket(first, "ascii")).server_status)
            return ()
        (columns,) = first
        if columns > _MOST_COLUMNS:
            raise ValueError(columns)
        # What the server calls them, and the end of that.
        for left in range(columns, -1, -1):
            if _is_eof(await self._packet()) != (left == 0):
                raise ValueError(columns)
        rows = []
        while not _is_eof(packet := await self._packet()):
            rows.append(_cells(packet, columns))
        _check_last(int.from_bytes(packet[3:], "little"))
        return tuple(rows)

    async def _packet(self) -> bytes:
        """Return the next packet without its header. Raises what is no such packet."""
        header, begin = self._at, self._at + _HEADER_BYTES
        while len(self._received) < begin:
            await self._receive()
        end = begin + int.from_bytes(self._received[header : begin - 1], "little")
        if end > MOST_BYTES:
            raise UnaskedBytesError
        while len(self._received) < end:
            await self._receive()
        number, self._at = self._received[begin - 1], end
        self._number = (self._number + 1) % 256
        if number != self._number:
            # MySQL shuts down with a packet that has no number.
            raise ValueError(number) if number else OperationalError(CR.CR_SERVER_LOST)
        packet = bytes(self._received[begin:end])
        if packet[0] == _ERROR:
            # Its number and, after an SQLSTATE, its text. The driver may raise anything for these.
            number = int.from_bytes(packet[1:3], "little")
            raise MySQLError(number, packet[3:].decode("ascii", "replace"))
        return packet

    async def _receive(self) -> None:
        try:
            received = await self._reader.read(MOST_BYTES)
        except OSError as fault:
            raise OperationalError(CR.CR_SERVER_LOST) from fault
        if not received:
            raise OperationalError(CR.CR_SERVER_LOST)
        self._received += received


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
