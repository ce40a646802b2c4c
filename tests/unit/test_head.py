"""The head of a request: that the cuts between segments change nothing, and forms beside those of
tests/http/test_requests.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.head import REQUEST_BYTES, WORD_BYTES, Request, read_head

V1 = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n"
NLB = V2 + b"\x21\x11\0\x54" + bytes(84)

FORMS = {
    b"OPTIONS * HTTP/1.1\r\nhost: www\r\n\r\n": "*",
    b"\r\n\nGET / HTTP/1.0\r\n\r\n": "/",
    b"get / http/1.0\r\n\r\n": "/",
    b"GET HTTP/1.0\r\n\r\n": "/",
    b"GET readyz HTTP/1.0\r\n\r\n": "/readyz",
    b"OPTIONS GET HTTP/1.0\r\n\r\n": "/GET",
    b"GET  \t/readyz\tHTTP/1.1 \r\n\r\n": "/readyz",
    b"GET http://db_1:9200/readyz#x HTTP/1.1\r\n\r\n": "/readyz",
    b"GET // HTTP/1.1\r\n\r\n": "//",
    b"GET /\xff HTTP/1.1\r\n\r\n": "/\xff",
    b"PROXY / HTTP/1.0\r\n\r\n": "/",
}
WRONG = {
    V1 + b"\x16\x03\x01\0": "tls",
    b"GET /" + b"a" * WORD_BYTES + b" HTTP/1.0\r\n": "too-long",
    b"GET / HTTP/1.0\r\n" + b"a:b\r\n" * REQUEST_BYTES: "too-long",
    V2 + b"\x21\x11\xff\xff" + bytes(REQUEST_BYTES): "too-long",
    b"GET /?available_when_readonly=0 1 HTTP/1.0\r\n": "no-request",
    b"Host: x\r\n": "no-request",
}
ENDED = {
    b"": Request(""),
    b"\r\n\r\n": Request(""),
    V1: Request(""),
    NLB: Request(""),
    b"GET /\r\n": Request("/"),
    b"PING\n": Request("/"),
    b"GET /?max_recv_queue=2 HTTP/1.1\r\nHost: x": Request("/", b"max_recv_queue=2"),
    # The rest of the query may be missing.
    b"GET /?max_recv_queue=2": "no-request",
    b"PROXY TCP4 192.0.2.1": "proxy-header",
    V2 + b"\x21": "proxy-header",
}


@pytest.mark.parametrize("sent", FORMS)
def test_each_form_of_one_request_is_read(sent: bytes) -> None:
    assert read_head(sent) == Request(FORMS[sent])


@pytest.mark.parametrize("sent", WRONG)
def test_what_is_wrong_is_said(sent: bytes) -> None:
    assert read_head(sent) == WRONG[sent]


@pytest.mark.parametrize("sent", ENDED)
def test_what_a_client_has_sent_that_sends_no_more_is_what_it_asks(sent: bytes) -> None:
    assert (read_head(sent), read_head(sent, ended=True)) == (None, ENDED[sent])


WORDS = b"GET HEAD / ? # * readyz http://x PRI HTTP/1.1 HTTP/2.0 max_recv_queue=2"
PIECES = (
    *WORDS.split(),
    b" ",
    b"\t",
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b"\x16",
    b"PROXY ",
    b"TCP4 ",
    b"UNKNOWN",
    V1,
    V2,
    b"\x21\x11\0\x0c",
    NLB,
    b"a" * 600,
    b"b" * 9000,
)


@given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=12).map(
        b"".join
    ),
    st.data(),
)
def test_whatever_is_sent_the_cuts_change_nothing(
    sent: bytes, data: st.DataObject
) -> None:
    asked, end = read_head(sent), read_head(sent, ended=True)
    assert end is not None
    assert asked in (None, end)
    cut = data.draw(st.integers(0, len(sent)))
    # What was known at the cut stays, and what was asked there is not another question.
    assert read_head(sent[:cut]) in (None, asked)
    early = read_head(sent[:cut], ended=True)
    if isinstance(early, Request) and early.path:
        assert end in (early, "too-long")
