"""`make truth`: check every 200 and every 503 during random faults on a real cluster."""

import argparse
import importlib.util
import os
import platform
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

import pymysql

from bench.truth import samplers
from bench.truth.faults import (
    FULL_DISK,
    KINDS,
    SETS,
    Fault,
    inject,
    plan,
    rebuild,
)
from bench.truth.group_faults import MARIABACKUP_OPTION, NEEDING_HOSTS, NOTIFY_OPTION
from bench.truth.report import (
    AFTER_SECONDS,
    IN_SYNC,
    OURS,
    PREPARING,
    SCRIPT,
    TRUTH,
    WITNESS,
    Report,
    Window,
)
from bench.truth.samplers import DEFAULT, STRICT_IN_SYNC, Sampler
from bench.truth.statements import STATEMENTS, prepare
from bench.truth.stretches import USABLE
from harness.galera import Group, Installation, Node, can_mount
from harness.network import NoNetworkError, RemoteHost, enter_network_of_our_own
from harness.process import (
    ProcessEndedError,
    interrupt_once,
    let_nothing_interrupt,
    with_system_path,
)
from harness.stack import Stack
from harness.waiting import NotInTimeError, tell_with_seconds, wait_for

_MEMBERS = 3
_USUAL = "usual"
_GROUPS = {
    _USUAL: Group(),
    "appliers-8": Group(options=("--wsrep-slave-threads=8",)),
    "arbitrator": Group(has_arbitrator=True),
    "encrypted": Group(is_encrypted=True),
    "fc-limit-1": Group(provider_options=("gcs.fc_limit=1",)),
    "ipv6": Group(is_ipv6=True),
    "weightless": Group(weightless=True),
}
_OPTIONS = (
    # As servers are by default: each commit waits for the disk.
    "--innodb-flush-log-at-trx-commit=1",
    "--rpl-semi-sync-master-timeout=100000",
    NOTIFY_OPTION,
    MARIABACKUP_OPTION,
)
_FORGOTTEN_SECONDS = 8.0
"""After so long, no rule excuses a node because its tables were made."""
_LATEST = 3
_INTERRUPTED = 130


def main() -> int:
    """Run it. Return 0 if no false answer lasted longer than its goal, else 1."""
    parser = argparse.ArgumentParser(prog="make truth", description=__doc__)
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(10**6),
        help="the seed of faults, nodes and durations (default: a random one)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        help="how long to inject faults (default: 5)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the run to this file, as PNG"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=KINDS,
        metavar="FAULT",
        help="inject these faults alone",
    )
    parser.add_argument(
        "--set", choices=SETS, help="inject the faults of this set alone"
    )
    parser.add_argument(
        "--group",
        choices=_GROUPS,
        default=_USUAL,
        help="two nodes and an arbitrator, or three nodes of such a group (default: usual)",
    )
    parser.add_argument("--faults", type=int, help="stop after so many faults")
    options = parser.parse_args()
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error(
            '--plot needs matplotlib: make truth ARGS="--plot FILE.png" installs it'
        )
    if _GROUPS[options.group].has_arbitrator and not shutil.which(
        "garbd", path=with_system_path({})["PATH"]
    ):
        parser.error(
            "--group arbitrator needs garbd: apt-get install galera-arbitrator-4"
        )
    interrupt_once()
    try:
        kinds = options.only or SETS.get(options.set, KINDS)
        report = _run(
            options.seed, options.minutes * 60, kinds, options.faults, options.group
        )
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (
        NotInTimeError,
        ProcessEndedError,
        NoNetworkError,
        RuntimeError,
        OSError,
        pymysql.MySQLError,
    ) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    print(f"\n{report.text()}\n\n{report.of_each_fault()}")
    if options.plot is not None:
        # Not at the top: matplotlib is installed only for --plot.
        from bench.truth.plot import draw  # noqa: PLC0415

        draw(report, options.plot)
    violations = report.violations()
    for violation in violations:
        print(f"\nVIOLATION: {violation}")
    print(f"\n{len(violations)} violations")
    return 1 if violations else 0


def _run(
    seed: int,
    seconds: float,
    only: Sequence[str],
    most_faults: int | None,
    group_name: str,
) -> Report:
    group = _GROUPS[group_name]
    size = _MEMBERS - group.has_arbitrator
    tell = tell_with_seconds()
    may_mount = can_mount()
    needing_root = {FULL_DISK, *NEEDING_HOSTS}
    kinds = [kind for kind in only if may_mount or kind not in needing_root]
    if may_mount:
        enter_network_of_our_own()
    else:
        tell("without the faults that only root can make: a full disk, the network's")
    with ExitStack() as exits:
        hosts = [
            exits.enter_context(RemoteHost(number))
            for number in range(_MEMBERS if may_mount else 0)
        ]
        installation = exits.enter_context(
            Installation(
                hosts=hosts,
                binary_logs=may_mount,
                options=_OPTIONS,
                group_timeouts=(),
                group=group,
            )
        )
        stack = exits.enter_context(Stack(size, tell, installation=installation))
        _wait_until_whole(stack)
        asked = {node.name: _samplers(stack, node) for node in stack.nodes}
        every = [sampler for of_node in asked.values() for sampler in of_node.values()]
        for sampler in every:
            exits.callback(sampler.end)
            sampler.start()
        time.sleep(AFTER_SECONDS)
        server, provider = (
            stack.nodes[0].sql("SELECT VERSION()")[0][0],
            stack.nodes[0].status("wsrep_provider_version"),
        )
        timeouts = _evs_timeouts(stack.nodes[0])
        faults = islice(plan(seed, len(stack.nodes), kinds), most_faults)
        windows, rebuilt = _inject_all(
            faults, seconds, stack, [of_node[TRUTH] for of_node in asked.values()], tell
        )
        for sampler in every:
            sampler.finish()
        # Without clustercheckd's version: the documents show the picture, and a release must not
        # change it.
        title = (
            f"Seed {seed}, {group_name} group, {len(windows)} faults, evs timeouts {timeouts},"
            f" cluster rebuilt {rebuilt} times; MariaDB {server}, Galera {provider},"
            f" Python {platform.python_version()}, {os.cpu_count()} cores."
        )
        let_nothing_interrupt()
    nodes = {
        name: {who: one.samples for who, one in of_node.items()}
        for name, of_node in asked.items()
    }
    return Report(title, nodes, windows)


def _evs_timeouts(node: Node) -> str:
    """Return the node's evs.suspect_timeout and evs.inactive_timeout."""
    ((_, options),) = node.sql("SHOW VARIABLES LIKE 'wsrep_provider_options'")
    found = re.findall(r"evs\.(?:suspect|inactive)_timeout = (\w+)", str(options))
    return " and ".join(sorted(found, reverse=True))


def _samplers(stack: Stack, node: Node) -> dict[str, Sampler]:
    service = stack.services[stack.nodes.index(node)]
    questions = {
        OURS: samplers.our_verdict(service, DEFAULT),
        IN_SYNC: samplers.our_verdict(service, STRICT_IN_SYNC),
        SCRIPT: samplers.script_verdict(node, stack.installation.directory),
        TRUTH: samplers.truth(node),
        WITNESS: samplers.witness(node),
    }
    paces = {
        SCRIPT: 0.5,
        WITNESS: 0.2,
    }  # these cost most, and a busy machine would delay the clients
    return {
        who: Sampler(f"{who} {node.name}", ask, paces.get(who, 0.1))
        for who, ask in questions.items()
    }


def _inject_all(
    faults: Iterable[Fault],
    seconds: float,
    stack: Stack,
    truths: Sequence[Sampler],
    tell: Callable[[str], None],
) -> tuple[list[Window], int]:
    """Go through one fault after the other.

    Return their windows, and how often the cluster did not recover.
    """

    def all_commit() -> bool:
        latest = [sample for sampler in truths for sample in sampler.samples[-_LATEST:]]
        return all(sample.kind == USABLE for sample in latest)

    windows: list[Window] = []
    rebuilt = 0
    end = time.monotonic() + seconds
    for fault in faults:
        if time.monotonic() > end:
            break
        name = stack.nodes[fault.node].name
        began_at = ended_at = time.monotonic()
        try:
            if fault.kind in STATEMENTS:
                prepare(stack.nodes[fault.node], fault.kind)
                windows.append(
                    Window(len(windows) + 1, PREPARING, name, began_at, began_at)
                )
                _wait_until_whole(stack)
                time.sleep(_FORGOTTEN_SECONDS)
            tell(f"{len(windows) + 1:3}: {fault.kind} on {name}")
            began_at = ended_at = time.monotonic()
            with inject(fault, stack):
                time.sleep(fault.seconds)
                ended_at = time.monotonic()
            _wait_until_whole(stack)
            # Shortly before the group agrees on a new view, it looks complete but does not commit.
            wait_for("every node to commit promptly", all_commit)
            time.sleep(AFTER_SECONDS)
        except (
            NotInTimeError,
            ProcessEndedError,
            OSError,
            pymysql.MySQLError,
        ) as stuck:
            # Galera does not always recover by itself. The answers meanwhile still count.
            tell(f"     the cluster does not recover, and is rebuilt: {stuck}")
            rebuilt += 1
            with suppress(NotInTimeError, ProcessEndedError):
                rebuild(stack)
                _wait_until_whole(stack)
        windows.append(Window(len(windows) + 1, fault.kind, name, began_at, ended_at))
    return windows, rebuilt


def _wait_until_whole(stack: Stack) -> None:
    stack.wait_until_whole()
    for service in stack.services:
        service.wait_for_verdict(200, "synced", target=STRICT_IN_SYNC)


if __name__ == "__main__":
    sys.exit(main())
