"""Host names to addresses; a resolver that hangs is in tests/cluster/test_host_names.py."""

import asyncio
import socket

import pytest

from app.database.resolver import Resolver


def addresses_of(host: str) -> list[str]:
    """Ask for the addresses of a host."""
    return asyncio.run(Resolver().addresses(host))


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1%lo", "fe80::1%lo"), ("127.1", "127.0.0.1")],
)
def test_an_address_is_its_own_answer(host: str, expected: str) -> None:
    assert addresses_of(host) == [expected]


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "\udce9"])
def test_what_cannot_be_a_name_is_a_unicode_error(host: str) -> None:
    with pytest.raises(UnicodeError):
        addresses_of(host)


def test_a_lookup_given_up_answers_whoever_asks_again_and_no_other_name() -> None:
    async def asked_again() -> list[str]:
        resolver = Resolver()
        asking = asyncio.create_task(resolver.addresses("localhost"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        # An empty name has no address, and no name server is asked for it.
        with pytest.raises(socket.gaierror):
            await resolver.addresses("")
        return await resolver.addresses("localhost")

    assert "127.0.0.1" in asyncio.run(asked_again())
