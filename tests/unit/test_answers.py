"""Verdicts into bytes, query strings into policies, and a monitor that is stuck."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.answers import Answer, Answers, policy_of, verdict_answer
from app.http.head import Request
from app.http.sources import HealthCheckCounts
from app.settings.error import SettingsError
from app.settings.settings import NOTHING_READS
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Verdict

POLICY = Policy()
ALIVE = (200, b"alive\r\n")
STUCK = (503, b"clustercheckd has stopped polling: restart it\r\n")


@pytest.mark.parametrize(
    ("available", "reason", "sentence", "why"),
    [
        (True, Reason.SYNCED, "is synced.", ""),
        (True, Reason.DONOR, "is synced.", "donor: seen\r\n"),
        (False, Reason.DONOR, "is not synced.", "donor: seen\r\n"),
        (False, Reason.READ_ONLY, "is read-only.", "read-only: seen\r\n"),
        (False, Reason.DISABLED, "is manually disabled.", "disabled: seen\r\n"),
    ],
)
def test_a_body_is_the_scripts_sentence_and_why(
    *, available: bool, reason: Reason, sentence: str, why: str
) -> None:
    answer = verdict_answer(Verdict(available=available, reason=reason, detail="seen"))
    body = f"Percona XtraDB Cluster Node {sentence}\r\n{why}".encode()
    assert (answer.status, answer.body) == (200 if available else 503, body)


@given(st.sampled_from(Reason), st.text(alphabet="is synced.é\n", max_size=60))
def test_no_unavailable_body_holds_the_good_sentence(
    reason: Reason, detail: str
) -> None:
    body = verdict_answer(Verdict(available=False, reason=reason, detail=detail)).body
    assert b"is synced." not in bytes(body)


def test_overrides_are_written_as_the_settings_that_they_replace() -> None:
    query = (
        b"available_when_donor=yes&available_when_readonly=0&available_when_full=OFF"
        b"&min_cluster_size=2&max_recv_queue=100&max_stall=0&max_sync_wait=500ms"
    )
    assert policy_of(query, POLICY) == Policy(True, False, False, 2, 100, 0.0, 0.5)  # noqa: FBT003 (in the fields' order)


def test_an_empty_query_changes_nothing() -> None:
    assert policy_of(b"&", POLICY) == POLICY


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (b"donor=1", "unknown parameter 'donor'"),
        *(
            (query, "available_when_donor: must be 0 or 1")
            for query in (
                b"available_when_donor=maybe",
                b"available_when_donor",
            )
        ),
        *(
            (query, query.decode().partition("=")[0] + ": must be a")
            for query in (
                b"min_cluster_size=-1",
                b"max_sync_wait=0",
                b"max_sync_wait=",
                b"max_recv_queue=1e3",
            )
        ),
        (
            b"available_when_donor=1&available_when_donor=1",
            "available_when_donor is given twice",
        ),
        (b"a&" * 250, "too many parameters"),
        (b"%0d%0aSet-Cookie:x=1", "unknown parameter '??Set-Cookie:x'"),
    ],
)
def test_a_query_that_cannot_be_followed_is_named(query: bytes, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        policy_of(query, POLICY)
    assert message in str(caught.value)


@given(st.binary(max_size=100))
def test_no_query_whatever_does_anything_else(query: bytes) -> None:
    try:
        # The values are tested above.
        assert isinstance(policy_of(query, POLICY), Policy)
    except SettingsError as fault:
        assert str(fault).isprintable()  # noqa: PT017 (either outcome is right)


def answer_of(monitor: SimpleNamespace, request: Request) -> tuple[int, bytes | str]:
    """Return the status and body of an answer where nothing reads in sync."""
    sources = SimpleNamespace(
        monitor=monitor,
        settings=SimpleNamespace(clustercheck_login_interval=0.0),
        health_checks=HealthCheckCounts(),
        answered={},
    )
    answer = Answers(sources).to(request)  # type: ignore[arg-type]
    assert isinstance(answer, Answer)
    return answer.status, answer.body


def test_a_limit_for_reads_in_sync_is_refused_if_nothing_reads() -> None:
    monitor = SimpleNamespace(polling=SimpleNamespace(policy=POLICY))
    refused = (400, f"max_sync_wait: {NOTHING_READS}\r\n".encode())
    assert answer_of(monitor, Request("/", b"max_sync_wait=3")) == refused


@pytest.mark.parametrize(("alive", "expected"), [(True, ALIVE), (False, STUCK)])
def test_livez_is_503_once_no_poll_ends(
    *, alive: bool, expected: tuple[int, bytes]
) -> None:
    assert answer_of(SimpleNamespace(alive=alive), Request("/livez")) == expected
