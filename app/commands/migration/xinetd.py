"""Finds the services that run the script in xinetd's configuration, as in xinetd.conf(5)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.commands.migration.found import Given, Runner

_BEGIN = re.compile(r"\s*(?:service\s+(\S+)|(defaults))\s*(\{?)\s*$")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*(\+=|-=|=)\s*(.*?)\s*$")

_TRANSLATED = {
    *("server", "server_args", "env", "port", "bind", "interface", "only_from", "disable", "flags"),
    # How the service is started, and as which user: clustercheckd's systemd unit decides that.
    *("socket_type", "protocol", "wait", "type", "user", "group", "groups", "id"),
}
_COUNTERPARTS = {
    "no_access": "CLUSTERCHECK_ALLOW_FROM can only list who may connect",
    "cps": "clustercheckd needs no such limit: an answer costs too little",
    "instances": "clustercheckd needs no such limit: an answer costs too little",
    "per_source": "clustercheckd needs no such limit: an answer costs too little",
    "log_type": "changes of verdict are logged, not health checks",
    "log_on_success": "changes of verdict are logged, not health checks",
    "log_on_failure": "changes of verdict are logged, not health checks",
    "access_times": "clustercheckd answers at all times",
    "redirect": "clustercheckd answers itself",
}


@dataclass(slots=True)
class _Section:
    """A service, or the defaults. attributes: name, operator and value with its source, in the order of the file."""

    path: Path
    service: str | None
    attributes: list[tuple[str, str, Given]] = field(default_factory=list)

    def last(self, *names: str) -> Given | None:
        """Return an attribute with one value: the last one applies."""
        return next((given for name, _, given in reversed(self.attributes) if name in names), None)

    def words(self, name: str, defaults: list[Given] | None) -> list[Given] | None:
        """Return the words of an attribute with a list; None if it is not there."""
        found = None if defaults is None else list(defaults)
        for other, operator, given in self.attributes:
            if other != name:
                continue
            words = [Given(word, given.where) for word in given.value.split()]
            if operator == "-=":
                removed = {word.value for word in words}
                found = [word for word in found or [] if word.value not in removed]
            else:
                found = (found or []) + words if operator == "+=" else words
        return found


def xinetd_runners(paths: list[Path]) -> list[Runner]:
    """Return the services in these files that run the script. Raises OSError."""
    sections = [section for path in paths for section in _sections(path)]
    defaults = _Section(Path(), None)
    for section in sections:
        if section.service is None:
            defaults.attributes += section.attributes
    runners = (_runner(section, defaults) for section in sections if section.service is not None)
    return [runner for runner in runners if runner is not None]


def is_xinetd(path: Path) -> bool:
    """Return whether a file looks like xinetd's configuration."""
    return bool(re.search(r"(?m)^\s*(?:service\s+\S+|defaults)\s*\{?\s*$", path.read_text(errors="surrogateescape")))


def _sections(path: Path) -> Iterator[_Section]:
    section: _Section | None = None
    for number, line in enumerate(path.read_text(errors="surrogateescape").splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        if begin := _BEGIN.match(line):
            section = _Section(path, begin[1])
        elif line.strip() == "}" and section is not None:
            yield section
            section = None
        elif section is not None and (attribute := _ATTRIBUTE.match(line)):
            name, operator, value = attribute.groups()
            given = Given(value, f"{path}, line {number} ({name})")
            section.attributes.append((name, operator, given))


def _runner(section: _Section, defaults: _Section) -> Runner | None:
    runner = Runner(f"the xinetd service {section.service} ({section.path})")
    server, arguments = section.last("server"), section.last("server_args")
    # xinetd has no quotes: blanks separate the words.
    words = [*(server.value.split() if server else []), *(arguments.value.split() if arguments else [])]
    where = arguments or server
    if where is None or not runner.take_command(words, where.where):
        return None
    for word in section.words("env", None) or []:
        name, _, value = word.value.partition("=")
        runner.environ[name] = Given(value, word.where)
    runner.port = section.last("port")
    runner.host = section.last("bind", "interface") or defaults.last("bind", "interface")
    runner.allow_from = section.words("only_from", defaults.words("only_from", None))
    refused = [attribute for attribute in defaults.attributes if attribute[0] == "no_access"]
    runner.uncovered = [
        Given(f"{name} = {given.value}: {_COUNTERPARTS.get(name, 'clustercheckd cannot do this')}", given.where)
        for name, _, given in [*refused, *section.attributes]
        if name not in _TRANSLATED
    ]
    runner.off = _off(section, defaults)
    return runner


def _off(section: _Section, defaults: _Section) -> str:
    """Return why a service does not run; empty if it does."""
    disable = section.last("disable")
    if disable is not None and disable.value.lower() == "yes":
        return disable.where
    flags = section.last("flags")
    if flags is not None and "DISABLE" in flags.value.split():
        return flags.where
    names = {section.service, *(given.value for given in [section.last("id")] if given)}
    for word in defaults.words("disabled", None) or []:
        if word.value in names:
            return word.where
    enabled = defaults.words("enabled", None)
    if enabled is not None and not names & {word.value for word in enabled}:
        return enabled[0].where if enabled else "nothing is enabled"
    return ""
