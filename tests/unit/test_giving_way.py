"""Imports in a thread, and the turns of the event loop beside it."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType

import pytest

from app.service.giving_way import giving_way
from tests.measured import done_within

pytestmark = pytest.mark.anyio

MODULES = [f"module_that_gives_way_{number}" for number in range(20)]


class Modules(MetaPathFinder, Loader):
    """Modules without a file, and what happens when one is imported."""

    def __init__(self, at_each: Callable[[str], None]) -> None:
        self._at_each = at_each

    def find_spec(self, name: str, *_place: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        self._at_each(module.__name__)


@contextmanager
def no_switch_of_threads() -> Iterator[None]:
    """Let no thread take the interpreter from another: only what it waits for gives it away."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def import_all(at_each: Callable[[str], None]) -> None:
    """Import all modules in a thread, and forget them."""
    loop, finder = asyncio.get_running_loop(), Modules(at_each)

    def import_in_thread() -> None:
        with giving_way(loop):
            for name in MODULES:
                import_module(name)

    sys.meta_path.append(finder)
    try:
        await asyncio.to_thread(import_in_thread)
        assert sys.modules.keys() >= set(MODULES)
    finally:
        sys.meta_path.remove(finder)
        for name in MODULES:
            sys.modules.pop(name, None)


async def test_a_loop_has_its_turn_before_each_module_of_a_thread() -> None:
    loop, turns, seen = asyncio.get_running_loop(), 0, list[int]()

    def take_a_turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(take_a_turn)

    take_a_turn()
    before = list(sys.meta_path)
    with no_switch_of_threads():
        await import_all(lambda _: seen.append(turns))
    assert all(one < other for one, other in pairwise(seen)), seen
    assert sys.meta_path == before


async def test_a_loop_that_imports_meanwhile_is_waited_for_once() -> None:
    loop = asyncio.get_running_loop()

    def import_in_the_loop(name: str) -> None:
        if name == MODULES[0]:
            loop.call_soon_threadsafe(import_module, MODULES[-1])

    with done_within("the imports", 1.5):
        await import_all(import_in_the_loop)
