"""Records contrib/prometheus/alerts_recorded_test.yml: `python -m tests.cluster.recording`.

A real Prometheus scrapes three real nodes each second, first as they are, then in the state of a
scene. promtool replays what it has kept, with more time between the scrapes: nobody waits an hour.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from harness.galera import Node
from harness.prometheus import CONTRIB, Prometheus
from harness.stack import Stack
from harness.waiting import wait_for

FILE = CONTRIB / "alerts_recorded_test.yml"
CLUSTER = {"job": "clustercheckd", "cluster": "main"}
WRITER = "/?available_when_readonly=0"
STATUS = "clustercheckd status db1:9200 db2:9200 db3:9200"

_BEFORE, _LEAST_DURING = 5, 30
_LEFT_OUT = {
    "clustercheckd_poll_duration_seconds_bucket",
    "clustercheckd_deadline_seconds",
}
"""They are long, and say nothing of these scenes."""

_HEAD = (
    "# promtool test rules alerts_recorded_test.yml: what real nodes have shown, and which alerts that raises.\n"
    "# tests/cluster/recording.py has recorded it.\n"
)


class Scene(NamedTuple):
    """A state of the cluster.

    seconds: between two scrapes, in the replay. enter: the block in which the cluster has it.
    raised: the alerts at its end, with labels, summary and command where the scene is theirs.
    scraped: which nodes. hold: for how many more scrapes the state lasts in the replay.
    """

    name: str
    seconds: int
    enter: Callable[[Stack, Prometheus], AbstractContextManager[object]]
    raised: Mapping[str, list[dict[str, Any]] | None] = {}
    scraped: slice = slice(None)
    donors_allowed: bool = False
    hold: int = 0


def _raised(
    summary: str, command: str, severity: str = "warning", **labels: str
) -> dict[str, Any]:
    return {
        "exp_labels": {"severity": severity, **CLUSTER, **labels},
        "exp_annotations": {"summary": summary, "command": command},
    }


@contextmanager
def _lost(_: Stack, prometheus: Prometheus) -> Iterator[None]:
    prometheus.scrape([])
    yield


@contextmanager
def _crashing(stack: Stack, _prometheus: Prometheus) -> Iterator[None]:
    for _ in range(2):
        began_at = time.monotonic()
        with stack.killed(stack.nodes[1]):
            pass
        # Its uptime has to be longer than the next start takes, to be seen to fall.
        time.sleep(_BEFORE + time.monotonic() - began_at)
    yield


@contextmanager
def _drained_donor(stack: Stack, _: Prometheus) -> Iterator[None]:
    disabled = stack.services[2].disabled_file
    disabled.touch()
    with stack.nodes[2].stalled():
        yield
    disabled.unlink()


SCENES = (
    Scene("three nodes that work", 15, lambda *_: nullcontext()),
    Scene(
        "all nodes are read-only, and a load balancer asks for one that is not",
        15,
        lambda stack, _: stack.on_each_node(
            lambda node: node.setting("read_only", "ON", "OFF")
        ),
        {
            "GaleraHealthCheckUnavailable": [
                _raised(
                    f"No node of the cluster main is available for health checks of {WRITER}",
                    STATUS,
                    "critical",
                    path=WRITER,
                )
            ]
        },
    ),
    Scene(
        "one node is read-only",
        15,
        lambda stack, _: stack.nodes[1].setting("read_only", "ON", "OFF"),
    ),
    Scene(
        "service discovery has lost all targets",
        60,
        _lost,
        {
            "ClustercheckdTargetsWrong": [
                _raised(
                    "Prometheus scrapes no nodes of the cluster main, which is not the number of"
                    " clustercheckd:nodes:wanted",
                    "promtool query instant http://localhost:9090 'up{job=\"clustercheckd\"}'",
                )
            ]
        },
    ),
    Scene(
        "a member that nothing scrapes has gone",
        60,
        lambda stack, _: stack.killed(stack.nodes[2]),
        {
            "GaleraMembersMissing": [
                _raised(
                    "The cluster main has 2 members, fewer than clustercheckd:members:wanted",
                    "clustercheckd status db1:9200 db2:9200",
                )
            ],
            "ClustercheckdTargetsWrong": None,
        },
        scraped=slice(2),
    ),
    Scene(
        "a server crashes twice",
        15,
        _crashing,
        {
            "GaleraServerRestarts": [
                _raised(
                    "The server beside db2:9200 has restarted 2 times within an hour",
                    "journalctl -u mariadb -n 100",
                    instance="db2:9200",
                )
            ]
        },
    ),
    Scene(
        "all nodes are full",
        60,
        lambda stack, _: stack.on_each_node(Node.full),
        {
            "GaleraNodeFull": [
                _raised(
                    f"{node}:9200 has used over 90% of its max_connections for 5 minutes",
                    'mariadb -e "SHOW FULL PROCESSLIST"',
                    instance=f"{node}:9200",
                )
                for node in ("db1", "db2", "db3")
            ]
        },
    ),
    Scene(
        "a backup holds a lock for longer than an hour",
        150,
        lambda stack, _: stack.nodes[2].stalled(),
        {
            "GaleraDonorTooLong": [
                _raised(
                    "db3:9200 has been a donor for too long",
                    'mariadb -e "SHOW FULL PROCESSLIST"',
                    instance="db3:9200",
                )
            ]
        },
    ),
    Scene("the same on a drained node", 150, _drained_donor),
    Scene(
        "a node is desynced by hand for two hours",
        240,
        lambda stack, _: stack.nodes[2].setting("wsrep_desync", "ON", "OFF"),
    ),
    Scene(
        "a node is desynced for longer than a day, and donors are allowed",
        300,
        lambda stack, _: stack.nodes[2].setting("wsrep_desync", "ON", "OFF"),
        {
            "GaleraDesyncedForADay": [
                _raised(
                    "db3:9200 has been desynced for a day",
                    'mariadb -e "SET GLOBAL wsrep_desync=OFF"',
                    "info",
                    instance="db3:9200",
                )
            ]
        },
        donors_allowed=True,
        hold=300,
    ),
)


def record(path: Path, stack: Stack) -> None:
    """Bring a cluster into each state, and write what promtool replays."""
    tests = [_recorded(stack, scene) for scene in SCENES]
    document = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "1m",
        "tests": tests,
    }
    text = yaml.safe_dump(document, sort_keys=False, width=1000)
    path.write_text(_HEAD + text)


def _recorded(stack: Stack, scene: Scene) -> dict[str, Any]:
    services = list(stack.services)
    if scene.donors_allowed:
        services[2] = stack.service(stack.nodes[2], AVAILABLE_WHEN_DONOR="1")
        services[2].wait_for_verdict(200, "synced")
    stack.wait_until_whole()
    services = services[scene.scraped]
    prometheus = stack.start_prometheus(services, interval="1s")
    wait_for("the first scrape", lambda: prometheus.answers("up"))
    time.sleep(_BEFORE)
    with scene.enter(stack, prometheus):
        time.sleep(_LEAST_DURING)
        names = {
            f"127.0.0.1:{service.port}": f"db{number}:9200"
            for number, service in enumerate(services, 1)
        }
        series, count = _series(prometheus, names, scene)
    prometheus.process.kill()
    ends = f"{(count - 1) * scene.seconds}s"
    firing = [
        {"labels": f'{{alertname="{alert}"}}', "value": 1}
        for alert in sorted(scene.raised)
    ]
    checks = [
        {"eval_time": at, "alertname": alert, "exp_alerts": raised}
        for alert, expected in scene.raised.items()
        if expected is not None
        for at, raised in (
            (f"{(_BEFORE - 1) * scene.seconds}s", []),
            (ends, expected),
        )
    ]
    return {
        "name": scene.name,
        "interval": f"{scene.seconds}s",
        "input_series": series,
        "alert_rule_test": checks,
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": ends,
                "exp_samples": firing,
            }
        ],
    }


def _series(
    prometheus: Prometheus, names: Mapping[str, str], scene: Scene
) -> tuple[list[dict[str, str]], int]:
    """Return the series that alerts use, as promtool takes them, and how long they are."""
    rules = (CONTRIB / "alerts.yml").read_text()
    used = {"up", *re.findall(r"\bclustercheckd_\w+", rules)}
    found = [
        one
        for one in prometheus.range('{job="clustercheckd"}[10m]')
        if one[0]["__name__"] in used - _LEFT_OUT
    ]
    start = min(at for _, samples in found for at, _ in samples)
    last = max(at for _, samples in found for at, _ in samples)
    # A target that has gone has no sample at the end.
    count = int(max(last, time.time() - 1) - start)
    series = []
    for labels, samples in found:
        name = labels.pop("__name__")
        values = {int(at - start): value for at, value in samples}
        is_still = len(set(values.values())) == 1
        if is_still and (
            name.endswith("_total") or (labels.get("reason") and "0" in values.values())
        ):
            # It changes nothing.
            continue
        labels["instance"] = names[labels["instance"]]
        if name.endswith("_timestamp_seconds"):
            values = {
                slot: f"{(float(value) - start) * scene.seconds:.0f}"
                for slot, value in values.items()
            }
        written = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        series.append(
            {
                "series": f"{name}{{{written}}}",
                "values": _written(values, count, scene.hold),
            }
        )
    return sorted(series, key=lambda one: one["series"]), count + scene.hold


def _written(values: Mapping[int, str], count: int, hold: int) -> str:
    """Write samples by their number, and the last one again; `stale` is where a target has gone."""
    slots: list[str] = []
    for slot in range(count):
        # One that came a little too late is no gap.
        late = values.get(slot + 1) and values.get(slot - 1)
        value = values.get(slot) or late
        if value is None:
            has_gone = slots and slots[-1] not in ("_", "stale")
            value = "stale" if has_gone else "_"
        slots.append(value)
    parts = []
    for value, run in groupby(slots + hold * slots[-1:]):
        again = len(list(run)) - 1
        if value == "_":
            parts.append(f"_x{again + 1}")
        elif again and value != "stale":
            parts.append(f"{value}x{again}")
        else:
            parts += [value] * (again + 1)
    return " ".join(parts)


if __name__ == "__main__":
    with Stack() as own:
        record(FILE, own)
