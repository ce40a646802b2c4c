"""A poll at half its price: a SELECT in place of a SHOW, wherever the server answers it."""

import asyncio
from collections.abc import Awaitable, Callable

from app.database.login import Database
from app.database.poller import Poller
from app.node_state import NodeState, PollFailure
from tests.fake_mysql import OK, SYNCED_STATUS, SYNCED_VARIABLES, FakeMySQL, Peer, error, fake_mysql, galera

DEADLINE_SECONDS = 5.0
# All of them, as Percona XtraDB Cluster answers.
VARIABLES = {
    "wsrep_desync": "ON",
    "wsrep_sst_donor_rejects_queries": "OFF",
    "wsrep_node_name": "pxc1",
    "read_only": "ON",
    "super_read_only": "OFF",
    "offline_mode": "OFF",
    "pxc_maint_mode": "DISABLED",
    "version": "8.0.36-28.1",
}


def polling(server: FakeMySQL, scenario: Callable[[Poller], Awaitable[None]]) -> None:
    """Run a scenario with an poller of this server."""

    async def running() -> None:
        poller = Poller(Database(host="127.0.0.1", port=server.port, username="someone"), DEADLINE_SECONDS)
        try:
            await scenario(poller)
        finally:
            await poller.close()

    asyncio.run(running())


def verbs(server: FakeMySQL) -> list[str]:
    """Give how the system variables were asked for, in order; forget what has been asked so far."""
    asked, server.statements[:] = list(server.statements), []
    return [statement.split()[0] for statement in asked if statement.startswith(("SHOW GLOBAL", "SELECT"))]


def test_after_one_show_a_connection_is_asked_by_select_for_what_the_server_has() -> None:
    async def scenario(poller: Poller) -> None:
        seen = [await poller.poll() for _ in range(3)]
        assert isinstance(seen[0], NodeState)
        assert seen[0] == seen[1] == seen[2]
        assert "@@global.offline_mode" not in server.statements[-1]
        assert verbs(server) == ["SHOW", "SELECT", "SELECT"]
        # A new connection may lead to another server.
        server.drop_connections()
        assert seen[0] == await poller.poll()
        assert verbs(server)[-1] == "SHOW"

    with fake_mysql(galera()) as server:
        polling(server, scenario)


def test_select_and_show_give_the_same_node_state_for_all_that_any_server_has() -> None:
    async def scenario(poller: Poller) -> None:
        shown, selected = await poller.poll(), await poller.poll()
        assert verbs(server) == ["SHOW", "SELECT"]
        assert isinstance(shown, NodeState)
        assert shown == selected
        assert (shown.wsrep_on, shown.wsrep_desync, shown.super_read_only) == ("ON", "ON", "OFF")

    with fake_mysql(galera(variables=VARIABLES)) as server:
        polling(server, scenario)


def test_both_statements_are_sent_before_the_first_is_answered() -> None:
    def answers_two_at_once(peer: Peer) -> None:
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=2)
        status, select = peer.receive(), peer.receive()
        assert status.startswith(b"\x03SHOW STATUS")
        # The packets of each answer are numbered from 1.
        peer.number_from(1)
        peer.rows(SYNCED_STATUS)
        peer.number_from(1)
        peer.selected(select, SYNCED_VARIABLES)
        peer.hang()

    async def scenario(poller: Poller) -> None:
        first, second = await poller.poll(), await poller.poll()
        assert isinstance(first, NodeState)
        assert first == second

    with fake_mysql(answers_two_at_once) as server:
        polling(server, scenario)


def test_a_select_refused_falls_back_to_the_show_in_the_same_poll() -> None:
    status = {"wsrep_ready": "ON"}
    ready = [True]

    async def scenario(poller: Poller) -> None:
        await poller.poll()
        ready[0], status["wsrep_ready"] = False, "OFF"
        seen = await poller.poll()
        assert isinstance(seen, NodeState)
        assert (seen.wsrep_ready, seen.pxc_maint_mode) == ("OFF", "DISABLED")
        assert verbs(server) == ["SHOW", "SELECT", "SHOW"]
        # It tries the SELECT again at each poll: the node may be ready.
        ready[0], status["wsrep_ready"] = True, "ON"
        await poller.poll()
        assert verbs(server) == ["SELECT"]

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(status, VARIABLES, lambda: not ready[0])

    with fake_mysql(behaviour) as server:
        polling(server, scenario)
        assert server.connections == 1


def test_a_variable_that_is_gone_is_noticed_by_the_show() -> None:
    variables = dict(VARIABLES)

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries({"wsrep_local_state": "4"}, variables)

    async def scenario(poller: Poller) -> None:
        await poller.poll()
        del variables["pxc_maint_mode"]
        seen = await poller.poll()
        assert isinstance(seen, NodeState)
        assert seen.pxc_maint_mode is None
        verbs(server)
        assert seen == await poller.poll()
        assert verbs(server) == ["SELECT"]

    with fake_mysql(behaviour) as server:
        polling(server, scenario)


def test_a_select_that_answers_nothing_or_half_is_passed_over() -> None:
    def behaviour(peer: Peer) -> None:
        answers = iter([[], [["1"]], [["1"], ["1"]]])
        peer.log_in()
        while statement := peer.receive()[1:]:
            if statement.startswith(b"SELECT"):
                peer.table(["@@global.read_only"], next(answers))
            else:
                peer.rows({"wsrep_local_state": "4"} if b"STATUS" in statement else VARIABLES)

    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, NodeState)
        for _ in range(3):
            assert seen == await poller.poll()

    with fake_mysql(behaviour) as server:
        polling(server, scenario)


def test_names_from_a_server_are_never_sent_back() -> None:
    async def scenario(poller: Poller) -> None:
        for _ in range(2):
            await poller.poll()
        assert "evil" not in server.statements[-1]

    with fake_mysql(galera(variables={"evil, SLEEP(9)": "1"})) as server:
        polling(server, scenario)


def test_an_error_of_the_select_that_ends_the_connection_is_no_refusal() -> None:
    def behaviour(peer: Peer) -> None:
        peer.log_in()
        while statement := peer.receive()[1:]:
            if statement.startswith(b"SELECT"):
                # With the number 0 for its packet, as servers say that the connection is over.
                peer.connection.sendall(b"\x05\0\0\0" + error(1053)[:5])
                return
            peer.rows({"wsrep_local_state": "4"} if b"STATUS" in statement else VARIABLES)

    async def scenario(poller: Poller) -> None:
        assert await poller.poll() == await poller.poll()
        assert server.connections == 2

    with fake_mysql(behaviour) as server:
        polling(server, scenario)


def test_an_answer_sent_twice_is_not_taken_for_the_next_poll() -> None:
    def behaviour(peer: Peer) -> None:
        if server.connections == 2:
            return galera(variables={"read_only": "ON"})(peer)
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=2)
        peer.receive()
        select = peer.receive()
        with peer.in_one_piece():
            for _ in range(2):
                peer.number_from(1)
                peer.rows(SYNCED_STATUS)
                peer.number_from(1)
                peer.selected(select, SYNCED_VARIABLES)
        peer.hang()
        return None

    async def scenario(poller: Poller) -> None:
        seen = [await poller.poll() for _ in range(3)]
        assert [one.read_only if isinstance(one, NodeState) else one for one in seen] == ["OFF", "OFF", "ON"]
        assert server.connections == 2

    with fake_mysql(behaviour) as server:
        polling(server, scenario)


def test_a_statement_with_two_results_is_refused() -> None:
    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        # The flag SERVER_MORE_RESULTS_EXISTS.
        peer.send(OK[:3] + b"\x08\x00\x00\x00")
        peer.send(OK)
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES)

    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert seen.detail == (f"127.0.0.1:{server.port} sent an answer to no statement while logging in")

    with fake_mysql(behaviour) as server:
        polling(server, scenario)


def test_rows_that_make_no_sense_end_the_connection() -> None:
    def behaviour(peer: Peer) -> None:
        peer.log_in()
        if server.connections == 1:
            peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=3)
            peer.receive()
            peer.table(["one"], [["1"]])
            peer.hang()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES)

    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), PollFailure)
        assert isinstance(await poller.poll(), NodeState)
        assert server.connections == 2

    with fake_mysql(behaviour) as server:
        polling(server, scenario)
