"""Turns the findings into settings of clustercheckd, each with its source."""

import os
import re
import stat
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from app.commands.migration.evaluate import Evaluated
from app.commands.migration.found import Given, Runner
from app.commands.migration.networks import networks_of
from app.commands.migration.places import Places
from app.commands.script import DEFAULTS
from app.database.client_options import ClientOptions
from app.settings_error import SettingsError

_PLAIN = re.compile(r"[\w./:@%+,\[\]*-]+")
_DOUBLE_QUOTABLE = re.compile(r"[^\"\\$`\n]*")
_THIS_HOST = IPv4Address("127.0.0.1")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 (compared with)
_LOCAL_HOST_NAMES = ("", "localhost")
_DEFAULT_PORT = "3306"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. where: its source, for the comment above it."""

    name: str
    value: str
    where: str

    @property
    def line(self) -> str:
        """The line of an env file. systemd and python-dotenv read it alike."""
        if _PLAIN.fullmatch(self.value):
            return f"{self.name}={self.value}"
        quote = '"' if _DOUBLE_QUOTABLE.fullmatch(self.value) else "'"
        return f"{self.name}={quote}{self.value}{quote}"


@dataclass(slots=True)
class Plan:
    """The contents of the env file. password: it is written to its own file."""

    settings: list[Setting] = field(default_factory=list)
    password: Given | None = None
    remarks: list[str] = field(default_factory=list)
    uncovered: list[Given] = field(default_factory=list)

    def set(self, name: str, given: Given, value: str | None = None, why: str = "") -> None:
        """Add a setting. value: if it differs from the one that was found; why: the reason for that."""
        where = f"{given.where}: {why}" if why else given.where
        self.settings.append(Setting(name, given.value if value is None else value, where))


def plan_for(runner: Runner, evaluated: Evaluated, places: Places) -> Plan:
    """Return the settings that make clustercheckd behave as the script does."""
    plan = Plan(remarks=list(evaluated.remarks), uncovered=list(runner.uncovered))
    if runner.off:
        plan.remarks.append(f"this does not run today: {runner.off}")
    values = evaluated.values
    _set_option_file(plan, values)
    _set_address(plan, values, places)
    _set_account(plan, values)
    _set_policy(plan, values)
    _set_listening(plan, runner)
    if "ERR_FILE" in values and values["ERR_FILE"].value not in ("", "/dev/null"):
        given = values["ERR_FILE"]
        text = f"the log file {given.value}: clustercheckd writes its log to standard error, the journal under systemd"
        plan.uncovered.append(Given(text, given.where))
    return plan


def _set_option_file(plan: Plan, values: dict[str, Given]) -> None:
    given = values.get("DEFAULTS_EXTRA_FILE")
    if given is None or not given.value:
        return
    if not os.access(given.value, os.R_OK):
        plan.remarks.append(f"{given.where}: {given.value} cannot be read, so the script ignores it")
        return
    plan.set("DEFAULTS_EXTRA_FILE", given)
    if not Path(given.value).stat().st_mode & stat.S_IROTH:
        plan.remarks.append(
            f"clustercheckd's user must be able to read {given.value}: type setfacl -m u:clustercheck:r {given.value}"
        )


def _set_address(plan: Plan, values: dict[str, Given], places: Places) -> None:
    host, port, socket = (values.get(name) for name in ("MYSQL_HOST", "MYSQL_PORT", "MYSQL_SOCKET"))
    if socket and socket.value:
        plan.set("MYSQL_SOCKET", socket)
    if host and host.value in _ANY_ADDRESS:
        plan.set("MYSQL_HOST", host, "127.0.0.1", f"{host.value} is not an address to connect to")
    elif host and host.value:
        plan.set("MYSQL_HOST", host)
    if port and port.value and host and host.value == "localhost" and port.value == _DEFAULT_PORT:
        plan.remarks.append(
            f"{port.where}: omitted, because MySQL's client ignores the port and connects to the socket for localhost;"
            " to connect over TCP, set MYSQL_HOST=127.0.0.1"
        )
    elif port and port.value:
        plan.set("MYSQL_PORT", port)
    decided = {setting.name for setting in plan.settings}
    if not decided & {"MYSQL_PORT", "MYSQL_SOCKET"} and (not host or host.value in _LOCAL_HOST_NAMES):
        _set_address_of_client(plan, values, places, ("socket",) if host and host.value else ("host", "socket"))


def _set_address_of_client(plan: Plan, values: dict[str, Given], places: Places, names: tuple[str, ...]) -> None:
    """Take the address from the files that the mysql client reads by default, and clustercheckd does not."""
    extra_file = values.get("DEFAULTS_EXTRA_FILE", Given("", "")).value
    for path in (extra_file, *places.client_files):
        if not path or not os.access(path, os.R_OK):
            continue
        try:
            options = ClientOptions.read(path)
        except SettingsError:
            continue
        address = {name: value for name in names if (value := options.values.get(name))}
        if address:
            # clustercheckd itself reads DEFAULTS_EXTRA_FILE.
            name, value = next(iter(address.items()))
            if path != extra_file:
                plan.set(f"MYSQL_{name.upper()}", Given(value, f"{path}, which the mysql client reads by default"))
            return


def _set_account(plan: Plan, values: dict[str, Given]) -> None:
    username, password = values.get("MYSQL_USERNAME"), values.get("MYSQL_PASSWORD")
    if username and username.value:
        plan.set("MYSQL_USERNAME", username)
    if password and password.value:
        plan.password = password
        if password.value == DEFAULTS["MYSQL_PASSWORD"]:
            plan.remarks.append("the password is the default in the published script: change it")


def _set_policy(plan: Plan, values: dict[str, Given]) -> None:
    donor, readonly = values.get("AVAILABLE_WHEN_DONOR"), values.get("AVAILABLE_WHEN_READONLY")
    if donor is not None:
        plan.set("AVAILABLE_WHEN_DONOR", donor, "1" if donor.value == "1" else "0", _unless(donor, "0", "1"))
    if readonly is not None:
        # The script compares numbers: 00 is 0, and -1 is not.
        refused = readonly.value.lstrip("0") == ""
        plan.set("AVAILABLE_WHEN_READONLY", readonly, "0" if refused else "1", _unless(readonly, "0", "1"))
    for name in ("CLUSTERCHECK_DISABLED_FILE", "CLUSTERCHECK_DEADLINE"):
        if name in values:
            plan.set(name, values[name])


def _unless(given: Given, *usual: str) -> str:
    return "" if given.value in usual else f"the script treats {given.value!r} as this value"


def _set_listening(plan: Plan, runner: Runner) -> None:
    if runner.host is not None:
        everywhere = runner.host.value in _ANY_ADDRESS
        plan.set("CLUSTERCHECK_HOST", runner.host, "*" if everywhere else runner.host.value)
    if runner.port is not None:
        plan.set("CLUSTERCHECK_PORT", runner.port)
    if runner.allow_from is not None:
        _set_allowed(plan, runner.allow_from)
    if runner.program:
        where = "the script answers on every path; remove this when all health checks request /"
        plan.settings.append(Setting("CLUSTERCHECK_ANY_PATH", "1", where))


def _set_allowed(plan: Plan, allow_from: list[Given]) -> None:
    if not allow_from:
        plan.remarks.append(
            "the list of allowed clients is empty, so nobody can connect to the script: with this file, everybody can"
        )
        return
    networks, unknown = networks_of(allow_from)
    if networks is None:
        plan.remarks.append(f"{allow_from[0].where}: everybody may connect; this is clustercheckd's default")
        return
    value = " ".join(str(network) for network in networks)
    if not unknown:
        names = [
            given.value for given in allow_from if re.search(r"[g-zG-Z]", given.value) and given.value != "localhost"
        ]
        why = f"{' '.join(names)} as resolved today: clustercheckd does not look up names again" if names else ""
        plan.set("CLUSTERCHECK_ALLOW_FROM", allow_from[0], value, why)
        if not any(_THIS_HOST in network for network in networks):
            plan.remarks.append(
                f"CLUSTERCHECK_ALLOW_FROM does not contain {_THIS_HOST}: add it, or drain, undrain and status on this"
                " host get no answer"
            )
        return
    # With an incomplete list, clustercheckd would refuse a load balancer, which would remove a healthy node.
    what = ", ".join(given.value for given in unknown)
    plan.remarks.append(
        f"{allow_from[0].where}: no address was found for {what}, so with this file everybody may connect; to restrict"
        f" it, set CLUSTERCHECK_ALLOW_FROM={value} and add that address"
    )
