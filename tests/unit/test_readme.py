"""The README cannot drift: every reason, setting, endpoint and override is in it, and none that is gone."""

import re
from pathlib import Path

from app.http.api import ENDPOINTS
from app.http.probe import OVERRIDES
from app.settings import Settings
from app.verdict import Reason

README = (Path(__file__).parents[2] / "README.md").read_text()


def first_column(heading: str) -> list[str]:
    """Give the code words in the first column of the table under a heading."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, flags=re.MULTILINE)


def test_every_reason_is_in_its_table_in_the_order_of_the_enumeration() -> None:
    assert first_column("Reasons") == [reason.value for reason in Reason]


def test_every_setting_is_in_its_table_with_its_default() -> None:
    assert sorted(first_column("Settings")) == sorted(name.upper() for name in Settings.model_fields)
    for name, field in Settings.model_fields.items():
        if field.default is not None:
            default = int(field.default) if isinstance(field.default, bool) else field.default
            assert re.search(rf"^\| `{name.upper()}` \| `?{re.escape(str(default))}`? \|", README, re.MULTILINE), name


def test_every_endpoint_is_in_its_table() -> None:
    assert set(first_column("Endpoints")) == set(ENDPOINTS)


def test_every_override_is_named() -> None:
    assert all(f"{name}=" in README for name in OVERRIDES)
