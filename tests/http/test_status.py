"""/status, human-readable; and `clustercheckd status`, which prints it for several services side by
side.
"""

import json
import re
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.commands.asking import address_at, members_of
from app.http.door import NOT_ALLOWED
from harness.network import RemoteHost
from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import Behaviour, FakeMySQL, Peer, fake_mysql, galera
from tests.http.conftest import DONOR, REFUSED
from tests.http.test_process import SECONDS, begin, run

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
NO_CLUSTERCHECKD = (
    "no clustercheckd that answers this host: check the port, and CLUSTERCHECK_ALLOW_FROM"
    " there"
)
OTHER = "something else answers there (200 OK): the clustercheck script?"

NAME_EACH = "name each: clustercheckd status db1 db2 db3, or one with --all"
SEE = "For what to do, see each word in docs/reference/reasons.md"


class TestEndpoint:
    """Rounded numbers, ISO times, what is planned."""

    def test_a_synced_node(self, services: Services, node: FakeMySQL) -> None:
        status = services.beside(node).status()
        assert (status["available"], status["draining"]) == (True, False)
        assert ISO.fullmatch(status["since"])
        absent = ("failure", "login_failure", "otherwise")
        assert {status[name] for name in absent} == {None}
        connections = status["connections"]
        assert connections["latest"] == {}
        assert set(connections["closed"].values()) == {0}

    def test_a_planned_absence_is_told_at_once(
        self, services: Services, node: FakeMySQL
    ) -> None:
        service = services.beside(node, CLUSTERCHECK_POLL_INTERVAL="60")
        service.disabled_file.touch()
        status = service.status()
        assert (status["available"], status["draining"], status["reason"]) == (
            False,
            True,
            "disabled",
        )
        synced = {
            "available": True,
            "reason": "synced",
            "detail": "wsrep_local_state is 4 (Synced)",
        }
        assert status["otherwise"] == synced
        assert [change["reason"] for change in status["changes"]] == [
            "synced",
            "disabled",
        ]
        assert status["since"] == status["changes"][-1]["at"]

    @pytest.mark.parametrize("path", ["/status", "/metrics"])
    def test_a_document_is_made_once_a_poll(
        self, unreachable: Service, path: str
    ) -> None:
        bodies = [unreachable.get(path).body for _ in range(10)]
        assert len(set(bodies)) < len(bodies)
        wait_for(
            "the document of the next poll",
            lambda: unreachable.get(path).body != bodies[-1],
        )


def address(service: Service) -> str:
    """Return what to type for a service."""
    return f"{LOOPBACK}:{service.port}"


def answers(
    body: bytes, *, head: bytes = b"HTTP/1.1 200 OK\r\n\r\n", forever: bool = False
) -> Behaviour:
    """Answer whatever is asked; forever: then send byte after byte."""

    def behaviour(peer: Peer) -> None:
        # An unread request would make the end of the connection a reset.
        peer.connection.recv(1000)
        peer.connection.sendall(head + body)
        while forever and peer.connection.send(b" "):
            time.sleep(0.1)

    return behaviour


class TestCommand:
    """A row for each service, a line for each node without traffic; exit code 0 where all are
    available.
    """

    def test_a_cluster_is_a_table(self, services: Services) -> None:
        with (
            fake_mysql(
                galera(
                    {"wsrep_local_recv_queue": "3"},
                    {"wsrep_node_name": "db1", "wsrep_osu_method": "RSU"},
                )
            ) as synced,
            fake_mysql(
                galera(
                    {**DONOR, "wsrep_local_recv_queue": "?"}, {"wsrep_node_name": "db2"}
                )
            ) as donor,
        ):
            first, second, third = (
                services.beside(synced),
                services.start(**settings_for(donor)),
                services.start(),
            )
            second.wait_for_verdict(503, "donor")
            nowhere = f"{LOOPBACK}:1"
            db1, db2, db3 = map(address, (first, second, third))
            done = run("status", db1, db2, db3, nowhere)
            alone = run("status", db1)
        # The runbook goes on only if all are available.
        assert (done.returncode, done.stderr, alone.returncode) == (1, "", 0)
        lines = done.stdout.splitlines()
        # Columns stand in line, and each age is that of a test.
        assert len({line.rindex("  ") for line in lines[:5]}) == 1
        cells = [re.split(" {2,}", line.rstrip()) for line in lines[:5]]
        assert [re.sub(r"  \d+s  ", "  0s  ", "  ".join(row)) for row in cells] == [
            "node  verdict  reason  since  size  recvq  state",
            f"{db1} (db1)  available  synced  0s  3  3  Synced",
            f"{db2} (db2)  draining  donor  0s  3  -1  Donor/Desynced",
            f"{db3}  NOT available  unreachable  0s  -  -  -",
            f"{nowhere}  no answer  -  -  -  -  -",
        ]
        note = f"{db1}: wsrep_OSU_method is RSU: DDL changes this node alone"
        assert lines[5:] == [
            note,
            f"{db2}: donor: wsrep_local_state is 2 (Donor/Desynced); AVAILABLE_WHEN_DONOR=0",
            f"{db3}: unreachable: {third.status()['detail']}",
            f"{nowhere}: Connection refused",
            SEE,
        ]
        assert alone.stdout.splitlines()[2:] == [
            "cluster: not-asked: 2 of its members",
            f"  {NAME_EACH}",
            note,
            SEE,
        ]

    @pytest.mark.parametrize("host", ["*", "::1"])
    def test_without_addresses_it_asks_the_service_of_its_settings(
        self, services: Services, host: str
    ) -> None:
        service = services.start_unasked(
            CLUSTERCHECK_HOST=host, CLUSTERCHECK_ALLOW_FROM="10.0.0.0/8"
        )
        environ = {"CLUSTERCHECK_HOST": host, "CLUSTERCHECK_PORT": str(service.port)}

        def unreachable() -> bool:
            done = run("status", **environ)
            return done.returncode == 1 and "NOT available  unreachable" in done.stdout

        wait_for("its row", unreachable)

    def test_whatever_answers_or_does_not_is_a_row_in_two_seconds(self) -> None:
        bodies = (
            b"Welcome.\r\n",
            b"[]",
            b'{"available": 1}',
            b'{"status": 404, "reason": "Not Found"}',
            b'{"available": false, "reason": "x", "more": %b0%b}'
            % (500 * b"[", 500 * b"]"),
            b"[" * 100_000,
            b"[" + b" " * 900_000,
        )
        with ExitStack() as exits:
            silent = [
                exits.enter_context(socket.create_server((LOOPBACK, 0)))
                for _ in range(15)
            ]
            others = [*map(answers, bodies), answers(b"{", forever=True)]
            ports = [exits.enter_context(fake_mysql(other)).port for other in others]
            # One after the other the silent ones would take 30 s, which is more than the command is
            # given.
            ports += [one.getsockname()[1] for one in silent]
            addresses = [f"{LOOPBACK}:{port}" for port in ports]
            done = run("status", *addresses)
        faults = 7 * [OTHER] + 16 * ["no answer within 2 s"]
        _, *lines, _ = done.stdout.splitlines()
        rows, words = lines[: len(addresses)], lines[len(addresses) :]
        assert [row.split() for row in rows] == [
            [address, "no", "answer", *"-----"] for address in addresses
        ]
        assert words == list(map("{}: {}".format, addresses, faults))
        assert (done.returncode, done.stderr) == (1, "")

    @pytest.mark.parametrize(
        ("members", "others"),
        [
            # The one at its own index was named in another way. An arbitrator has none.
            (
                f"127.0.0.2:3306,{LOOPBACK}:3306,,127.0.0.3:3306",
                ["127.0.0.2", "127.0.0.3"],
            ),
            ("AUTO,AUTO,AUTO", []),
        ],
    )
    def test_all_asks_the_members_that_were_not_named(
        self, members: str, others: list[str]
    ) -> None:
        node = {"wsrep_incoming_addresses": members, "wsrep_local_index": 1}
        document = {"available": True, "reason": "synced", "node": node}
        with fake_mysql(answers(json.dumps(document).encode())) as server:
            named = f"localhost:{server.port}"
            found = members_of([address_at(named, 0)])
        addresses = [f"{host}:{server.port}" for host in others]
        assert [one.name for one in found] == [named, *addresses]

    def test_a_client_that_is_shut_out_is_told_until_the_list_is_right(
        self, services: Services, tmp_path: Path, remote_host: RemoteHost
    ) -> None:
        env_file = tmp_path / "settings.env"
        env_file.write_text("CLUSTERCHECK_ALLOW_FROM=10.0.0.0/8\n")
        service = services.start(
            CLUSTERCHECK_HOST="*", CLUSTERCHECK_ENV_FILE=str(env_file)
        )
        there = f"{remote_host.our_address}:{service.port}"
        told = f"{there}: {NO_CLUSTERCHECKD}\n"
        with remote_host.entered():
            assert told in run("status", there).stdout
        refused = service.status()["connections"]["latest"]["refused"]
        assert (refused["client"], refused["detail"]) == (
            remote_host.address,
            NOT_ALLOWED,
        )
        env_file.write_text("CLUSTERCHECK_ALLOW_FROM=198.18.0.0/15\n")
        service.process.send(signal.SIGHUP)

        def is_told() -> bool:
            with remote_host.entered():
                return told not in run("status", there).stdout

        wait_for("no refusal", is_told)
        env_file.write_text("CLUSTERCHECK_ALLOW_FROM=10.0.0.0/8\n")
        done = run("reload", CLUSTERCHECK_PORT=str(service.port))
        assert done.returncode == 1
        assert f"refuses {remote_host.address}, which asked in the last" in done.stderr

    def test_what_is_answered_is_shown_in_a_bounded_size_and_without_control_characters(
        self,
    ) -> None:
        large = {
            "wsrep_cluster_size": int("9" * 4000),
            "wsrep_local_recv_queue": 10**300,
            "wsrep_node_name": "n" * 999,
        }
        document = {
            "available": False,
            "reason": "\x1b[2J" * 999,
            "detail": "\x07" * 99_999,
            "since": "0001-01-01T00:00:00+14:00",
        }
        for node in (large, ["\x1b"]):
            with fake_mysql(
                answers(json.dumps({**document, "node": node}).encode())
            ) as server:
                done = run("status", f"{LOOPBACK}:{server.port}")
            assert len(done.stdout.splitlines()) == 4
            assert max(map(len, done.stdout.splitlines())) <= 300
            assert not set(done.stdout) & {"\x1b", "\x07"}

    def test_a_cluster_whose_logins_fail_is_available_with_a_note(
        self, services: Services, node: FakeMySQL
    ) -> None:
        service = services.beside(node, CLUSTERCHECK_LOGIN_INTERVAL="200ms")
        node.behaviour = REFUSED
        wait_for("a login to fail", lambda: service.status()["login_failure"])
        done = run("status", address(service))
        assert done.returncode == 3
        assert "cluster: no-logins: " in done.stdout
        assert f"{address(service)}: its logins fail: access-denied: " in done.stdout

    def test_watch_goes_on_until_it_is_interrupted(self, services: Services) -> None:
        drainable = services.start()
        with begin("status", "--watch", address(drainable)) as process:
            output = process.stdout
            assert output is not None
            shown = [next(output).split()[0] for _ in range(8)]
            drainable.disabled_file.touch()
            wait_for(
                "the drain",
                lambda: "disabled; otherwise unreachable" in next(output),
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 130
        where = address(drainable)
        assert shown == 2 * ["node", where, f"{where}:", "For"]

    def test_with_addresses_it_reads_no_env_file_and_no_setting_but_the_port(
        self, unreachable: Service
    ) -> None:
        port = str(unreachable.port)
        wrong = {"AVAILABLE_WHEN_DONOR": "perhaps"}
        done = run(
            "status", address(unreachable), CLUSTERCHECK_ENV_FILE="/no/file", **wrong
        )
        assert (done.returncode, done.stderr) == (1, "")
        for typed in (
            done,
            run("status", LOOPBACK, CLUSTERCHECK_PORT=port),
            run("status", CLUSTERCHECK_PORT=port, **wrong),
        ):
            assert "NOT available  unreachable" in typed.stdout
