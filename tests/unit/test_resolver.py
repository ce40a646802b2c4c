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


async def ask_and_give_up(resolver: Resolver) -> None:
    """Ask for an address, and be cancelled before it is there."""
    asking = asyncio.create_task(resolver.addresses("localhost"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_question_given_up_is_answered_to_whoever_asks_again() -> None:
    async def asked_twice() -> list[str]:
        resolver = Resolver()
        await ask_and_give_up(resolver)
        return await resolver.addresses("localhost")

    assert "127.0.0.1" in asyncio.run(asked_twice())


def test_another_name_gets_its_own_answer() -> None:
    async def two_names() -> list[str]:
        resolver = Resolver()
        await ask_and_give_up(resolver)
        # An empty name has no address, and no name server is asked for it.
        with pytest.raises(socket.gaierror):
            await resolver.addresses("")
        return await resolver.addresses("localhost")

    assert "127.0.0.1" in asyncio.run(two_names())
