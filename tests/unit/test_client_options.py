"""Options by the names they may have, side by side with what the mariadb client takes them for."""

import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.database.option_file import OptionFile
from app.database.tls import Tls

TEXTS = ("host", "socket", "user", "ssl-ca", "ssl-cert")
SWITCHES = ("ssl", "ssl-verify-server-cert")
UNSET = ("", "(No default value)")


def as_the_client_takes_them(path: Path) -> dict[str, str | None]:
    """Return what the mariadb client has for each variable once it has read a file."""
    command = ["mariadb", f"--defaults-file={path}", "--help"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, timeout=10).stdout
    variables = (line.partition(" ") for line in printed.rpartition("---\n")[2].splitlines())
    return {name: None if value.strip() in UNSET else value.strip() for name, _, value in variables}


def spelled(names: tuple[str, ...], prefixes: tuple[str, ...], values: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Make lines that set one of these, in any spelling."""
    spellings = (str, str.upper, str.title, lambda name: name.replace("-", "_"))
    name = st.builds(
        lambda prefix, name, spell: spell(prefix + name), *map(st.sampled_from, (prefixes, names, spellings))
    )
    return st.builds(lambda name, value: name + value, name, st.sampled_from(values))


lines = st.one_of(
    spelled(TEXTS, ("", "loose-"), ("=x", " = y")),
    spelled(SWITCHES, ("", "loose-", "skip-", "disable-", "enable-", "loose-skip-"), ("", "=0", "=1", "=on", "=OFF")),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, min_size=1, max_size=5))
def test_any_spelling_is_taken_as_the_mariadb_client_takes_it(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "my.cnf"
    path.write_text("[client]\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    expected, options = as_the_client_takes_them(path), OptionFile.read(str(path))
    assert {name: expected.get(name) for name in TEXTS} == {name: options.value(name) for name in TEXTS}
    if options.values.keys() & {"ssl", "ssl-ca", "ssl-cert"}:  # the client's default is TLS if the server has it
        assert (expected["ssl"] == "TRUE") == Tls.of_file(options).required
