"""`make truth`: check every 200 and every 503 during random faults on a real cluster."""

import argparse
import contextlib
import importlib.util
import os
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pymysql

from app import __version__
from bench.truth.faults import Fault, inject, plan, rebuild
from bench.truth.report import DONORS, OURS, SCRIPT, SHORT_QUEUE, NodeSamples, Report, Window
from bench.truth.samplers import (
    CLASSIC_PACE_SECONDS,
    LENIENT_PACE_SECONDS,
    Sampler,
    Witness,
    WritingClient,
    classic_verdict,
    our_verdict,
    truth,
)
from bench.truth.stretches import USABLE
from harness.process import ProcessEndedError, interrupt_once, let_nothing_interrupt
from harness.service import Service
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for

_QUIET_SECONDS = 1.0
_LATEST, _SETTLED_SECONDS = 3, 0.5
_MOST_MINUTES = 60.0
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Return 0 if no false answer lasted longer than its goal, else 1."""
    parser = argparse.ArgumentParser(prog="make truth", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed of faults, nodes and durations (default: a random one)")
    parser.add_argument("--minutes", type=_minutes, default=5.0, help="how long to inject faults (default: 5)")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="write every sample to this file, as TSV")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the run to this file, as SVG")
    options = parser.parse_args(arguments)
    seed: int = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    for flag, path in (("--samples", options.samples), ("--plot", options.plot)):
        try:
            if path is not None:
                path.write_text("")
        except OSError as fault:
            parser.error(f"{flag} {path}: {fault.strerror}")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error('--plot needs matplotlib: make truth ARGS="--plot FILE.svg" installs it')
    interrupt_once()
    try:
        report = _run(seed, options.minutes * 60, options.samples)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (NotInTimeError, ProcessEndedError, RuntimeError, OSError, pymysql.MySQLError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    print(f"\n{report.text()}")
    if options.plot is not None:
        # Not at the top: matplotlib is installed only for --plot.
        from bench.truth.plot import draw  # noqa: PLC0415

        # The documents show the picture, and a release must not have to change it.
        title = report.title.replace(f"clustercheckd {__version__}, ", "")
        draw(report.nodes, report.windows, title, options.plot)
    violations = report.violations()
    for violation in violations:
        print(f"\nVIOLATION: {violation}")
    print(f"\n{len(violations)} violations" if violations else "\nno violation of the goal")
    return 1 if violations else 0


class Sampling:
    """All threads that sample the nodes, and the application that writes."""

    def __init__(self, stack: Stack, services: Sequence[Service]) -> None:
        self._asking = {
            node.name: {
                OURS: Sampler(f"verdict {node.name}", our_verdict(service)),
                DONORS: Sampler(
                    f"lenient verdict {node.name}",
                    our_verdict(service, "/?available_when_donor=1"),
                    LENIENT_PACE_SECONDS,
                ),
                SHORT_QUEUE: Sampler(
                    f"lenient verdict with a queue {node.name}",
                    our_verdict(service, "/?available_when_donor=1&max_recv_queue=10"),
                    LENIENT_PACE_SECONDS,
                ),
                SCRIPT: Sampler(f"script {node.name}", classic_verdict(node), CLASSIC_PACE_SECONDS),
                "truth": Sampler(f"truth {node.name}", truth(node)),
                "witness": Sampler(f"witness {node.name}", Witness(node).ask),
            }
            for node, service in zip(stack.nodes, services, strict=True)
        }
        self.client = WritingClient(stack.haproxy)

    def start(self) -> None:
        """Start all threads."""
        self.client.start()
        for sampler in self._all():
            sampler.start()

    def end(self) -> None:
        """Tell all threads to stop, without waiting for them."""
        self.client.end()
        for sampler in self._all():
            sampler.end()

    def finish(self) -> None:
        """Stop all threads and wait for them. Raises RuntimeError if one failed."""
        self.end()
        self.client.join()
        for sampler in self._all():
            sampler.finish()

    def all_commit(self) -> bool:
        """Return whether the latest clients of every node committed within 0.5 s."""
        latest = [sample for asked in self._asking.values() for sample in asked["truth"].samples[-_LATEST:]]
        return all(s.kind == USABLE and s.ended_at - s.began_at <= _SETTLED_SECONDS for s in latest)

    def nodes(self) -> dict[str, NodeSamples]:
        """Return all samples, by node."""
        return {
            name: NodeSamples(
                {checker: asked[checker].samples for checker in (OURS, DONORS, SHORT_QUEUE, SCRIPT)},
                asked["truth"].samples,
                asked["witness"].samples,
            )
            for name, asked in self._asking.items()
        }

    def write_to(self, path: Path) -> None:
        """Write all samples, one per line: node, who was asked, start, end, kind, what was seen."""
        with path.open("w") as file:
            for name, asked in self._asking.items():
                for who, sampler in asked.items():
                    for sample in sampler.samples:
                        times = f"{sample.began_at:.3f}\t{sample.ended_at:.3f}"
                        file.write(f"{name}\t{who}\t{times}\t{sample.kind}\t{' '.join(sample.seen.split())}\n")

    def _all(self) -> Iterator[Sampler]:
        for asked in self._asking.values():
            yield from asked.values()


def _run(seed: int, seconds: float, samples: Path | None) -> Report:
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {what}", flush=True)

    tell(f"seed {seed}, {seconds / 60:g} minutes")
    with ExitStack() as exits:
        stack = exits.enter_context(Stack(tell=tell))
        strict = [
            stack.service(node, AVAILABLE_WHEN_DONOR="0", AVAILABLE_WHEN_READONLY="0", AVAILABLE_WHEN_FULL="0")
            for node in stack.nodes
        ]
        versions = _versions(stack)
        tell(versions)
        _wait_until_whole(stack, strict)
        sampling = Sampling(stack, strict)
        exits.callback(sampling.end)
        sampling.start()
        time.sleep(_QUIET_SECONDS)
        windows = []
        end = time.monotonic() + seconds
        rebuilt = 0
        for number, fault in enumerate(plan(seed, len(stack.nodes)), 1):
            if time.monotonic() > end:
                break
            tell(f"{number:3}: {fault.kind} on {stack.nodes[fault.node].name} for {fault.seconds} s")
            windows.append(Window(number, fault.kind, stack.nodes[fault.node].name, time.monotonic()))
            try:
                _go_through(fault, stack, strict, sampling)
            except (NotInTimeError, ProcessEndedError, OSError, pymysql.MySQLError) as stuck:
                # Galera does not always recover by itself. The answers meanwhile still count.
                tell(f"     the cluster does not recover, and is rebuilt: {stuck}")
                rebuilt += 1
                rebuild(stack)
                _wait_until_whole(stack, strict)
        sampling.finish()
        client = sampling.client
        tell(f"{len(windows)} faults; the client committed {client.committed} rows, reconnected {client.failed} times")
        if samples is not None:
            sampling.write_to(samples)
        minutes = (time.monotonic() - end + seconds) / 60
        title = (
            f"Seed {seed}, {len(windows)} faults in {minutes:.1f} minutes, cluster rebuilt {rebuilt} times; {versions}."
        )
        report = Report(title, sampling.nodes(), windows)
        let_nothing_interrupt()
    return report


def _go_through(fault: Fault, stack: Stack, strict: Sequence[Service], sampling: Sampling) -> None:
    with inject(fault, stack):
        time.sleep(fault.seconds)
    _wait_until_whole(stack, strict)
    # Shortly before the group agrees on a new view, it looks complete but does not commit.
    wait_for("every node to commit promptly", sampling.all_commit)
    time.sleep(_QUIET_SECONDS)


def _wait_until_whole(stack: Stack, strict: Sequence[Service]) -> None:
    stack.wait_until_whole()
    for service in strict:
        service.wait_for_verdict(200, "synced")


def _versions(stack: Stack) -> str:
    node = stack.nodes[0]
    server = node.sql("SELECT VERSION()")[0][0]
    return (
        f"clustercheckd {__version__}, MariaDB {server}, Galera {node.status('wsrep_provider_version')},"
        f" Python {platform.python_version()}, {os.cpu_count()} cores"
    )


def _minutes(text: str) -> float:
    with contextlib.suppress(ValueError):
        minutes = float(text)
        if 0 < minutes <= _MOST_MINUTES:
            return minutes
    message = f"{text} is not a number above 0 and up to {_MOST_MINUTES:g}"
    raise argparse.ArgumentTypeError(message)


if __name__ == "__main__":
    sys.exit(main())
