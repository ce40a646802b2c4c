"""`python -m bench.stall >docs/stall.svg`: one stall over time, as docs/policies.md shows it.

A lock holds up a node's applier for ten seconds, and three clients write on the other nodes: the
queue and the pause are those of a run on MariaDB 10.11. What follows is computed by the rules.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape

from app.verdict.alone import WRITTEN, Look, Stand
from app.verdict.node_state import NodeState
from app.verdict.rules import Policy, Switches, decide

_BEGINS, _ENDS, _END = 2.0, 12.0, 15.0
"""The lock, and the picture, in seconds."""
_POLL_SECONDS, _READ_SECONDS, _DRAIN_SECONDS = 0.25, 2.0, 0.5
_QUEUED_A_SECOND, _MOST_QUEUED = 10, 29
_LEFT, _WIDTH, _ROW, _BAR = 190, 640, 34, 14
_GREEN, _RED, _GREY, _BLUE = "#2e7d32", "#c62828", "#9e9e9e", "#1565c0"

_SYNCED = NodeState(
    wsrep_local_state=4,
    wsrep_cluster_status="Primary",
    wsrep_ready="ON",
    wsrep_connected="ON",
    wsrep_provider="galera.so",
)


def _queue_at(at: float) -> int:
    if not _BEGINS < at < _ENDS + _DRAIN_SECONDS:
        return 0
    queued = min(_QUEUED_A_SECOND * (at - _BEGINS), _MOST_QUEUED)
    if at > _ENDS:
        queued *= 1 - (at - _ENDS) / _DRAIN_SECONDS
    return int(queued)


def _looks() -> Iterator[Look]:
    began_at = answered_at = 0.0
    for number in range(int(_END / _POLL_SECONDS) + 1):
        at = number * _POLL_SECONDS
        is_held = _BEGINS <= at < _ENDS
        if not is_held:
            began_at = at - at % _READ_SECONDS
            answered_at = began_at
        elif answered_at == began_at and at >= began_at + _READ_SECONDS:
            began_at = at
        paused = int(at > _BEGINS and _queue_at(min(at, _ENDS)) >= _MOST_QUEUED)
        yield Look(
            at=at,
            committed=100 + int(_QUEUED_A_SECOND * min(at, _BEGINS))
            if at < _ENDS
            else 200 + number,
            queue=_queue_at(at),
            sent=paused,
            received=paused,
            wait_seconds=at - began_at if is_held and began_at > answered_at else 0.0,
            in_sync_at=answered_at,
            seen={WRITTEN: 7} if is_held else {},
        )


def svg() -> str:
    """Return the picture."""
    looks = list(_looks())
    stand, verdicts = Stand(), []
    for look in looks:
        stand = stand.after(look)
        why, seconds = stand.cause
        node = NodeState(**vars(_SYNCED) | {"stall": why, "stall_seconds": seconds})
        verdicts.append(decide(node, 0.0, Policy(), Switches()))
    rows = [
        "a lock holds up the applier",
        "receive queue",
        "this node pauses its group",
        "a read in sync waits",
        "verdict",
    ]
    parts = [_text(0, (n + 0.7) * _ROW, name) for n, name in enumerate(rows)]
    parts.append(_bar(0, _BEGINS, _ENDS, _GREY))
    points = " ".join(
        f"{_x(one.at):.0f},{2 * _ROW - 4 - one.queue * 0.9:.0f}" for one in looks
    )
    parts.append(f'<polyline points="{points}" fill="none" stroke="{_BLUE}"/>')
    parts.append(_text(_x(_ENDS) + 8, 1.6 * _ROW, f"{_MOST_QUEUED} write-sets"))
    paused_at = next(one.at for one in looks if one.sent)
    parts.append(_bar(2, paused_at, paused_at + _POLL_SECONDS, _BLUE))
    waits_at = next(one.at for one in looks if one.wait_seconds)
    parts.append(_bar(3, waits_at, _ENDS, _GREY))
    for look, verdict in zip(looks, verdicts, strict=True):
        colour = _GREEN if verdict.available else _RED
        parts.append(_bar(4, look.at, look.at + _POLL_SECONDS, colour))
    out_at = next(
        one.at for one, said in zip(looks, verdicts, strict=True) if not said.available
    )
    parts.append(_text(_x(out_at) + 4, 4.68 * _ROW, "503 stalled", "white"))
    parts.append(_text(_x(0) + 4, 4.68 * _ROW, "200 synced", "white"))
    marks = range(int(_END) + 1)
    parts += (_text(_x(at) - 3, 5.5 * _ROW, f"{at}") for at in marks)
    parts.append(_text(_x(_END) + 10, 5.5 * _ROW, "s"))
    size = f'width="{_LEFT + _WIDTH + 40}" height="{6 * _ROW}"'
    font = 'font-family="sans-serif" font-size="13"'
    space = "http://www.w3.org/2000/svg"
    body = "\n".join(parts)
    white = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="{space}" {size} {font}>\n{white}\n{body}\n</svg>\n'


def _x(at: float) -> float:
    return _LEFT + _WIDTH * at / _END


def _bar(row: int, begin: float, end: float, colour: str) -> str:
    width = min(_x(end), _x(_END)) - _x(begin)
    top = (row + 0.35) * _ROW
    return (
        f'<rect x="{_x(begin):.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BAR}"'
        f' fill="{colour}"/>'
    )


def _text(left: float, top: float, words: str, colour: str = "black") -> str:
    where = f'x="{left:.0f}" y="{top:.0f}" fill="{colour}"'
    return f"<text {where}>{escape(words)}</text>"


if __name__ == "__main__":
    print(svg(), end="")
