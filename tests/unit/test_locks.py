"""The locks agree: image, packages and tests have the service's own versions."""

import re

import pytest

from tests.unit.manifests import ROOT


def pins_in(name: str) -> set[str]:
    """Give the names and versions of a lock."""
    return set(
        re.findall(r"^([\w.-]+==[^ ;\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    )


@pytest.mark.parametrize("lock", ["requirements/dev.txt", "requirements/package.txt"])
def test_each_lock_has_all_that_the_service_needs(lock: str) -> None:
    needed = pins_in("requirements/service.txt")
    assert needed
    assert pins_in(lock) >= needed, "make lock brings them together"
