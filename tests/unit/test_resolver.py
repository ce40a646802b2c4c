"""Host names to addresses; a resolver that hangs is in tests/cluster/test_host_names.py."""

import asyncio
import resource
import threading

import pytest

from app.database.resolver import Resolver


def addresses_of(host: str) -> list[str]:
    """Ask for the addresses of a host."""
    return asyncio.run(Resolver().addresses(host))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("fe80::1%lo", "fe80::1%lo"),
        ("127.1", "127.0.0.1"),
    ],
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
        with pytest.raises(OSError, match="not known"):
            await resolver.addresses("")
        return await resolver.addresses("localhost")

    assert "127.0.0.1" in asyncio.run(asked_again())


def test_without_a_thread_for_it_a_lookup_is_no_fault_of_the_servers() -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    stack_bytes = threading.stack_size(1 << 40)
    try:
        # More than the limit: no thread can start, as where the limit on threads is reached.
        resource.setrlimit(resource.RLIMIT_AS, (1 << 39, limits[1]))
        with pytest.raises(OSError, match="clustercheckd could not start a thread"):
            addresses_of("db.invalid")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        threading.stack_size(stack_bytes)
