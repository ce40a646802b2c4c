"""`clustercheckd check`: poll the node once, as the service would."""

import dataclasses
import json
import os
import pwd

from app.commands.exit_status import AVAILABLE, DONE, NOT_AVAILABLE
from app.commands.output import REASONS_PAGE, complain, say
from app.database.poller import poll_once
from app.settings.listening import check_listening
from app.settings.settings import WITHOUT_FLAG, Load, Settings, default_of
from app.settings.switches import ManualSwitches
from app.settings.variables import Variable
from app.text import one_line
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import decide

_SERVICE_USER = "clustercheck"
"""The user of the packages' unit."""
_OF_THE_LOGIN = (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED, Reason.TOO_MANY_CONNECTIONS)
_KEPT = "A running service keeps its session, and may find the node available: clustercheckd status"


def check(settings: Settings, *, as_json: bool) -> int:
    """Poll the node once and print the verdict; return the exit status. Raises `SettingsError`."""
    complaint = _become_service_user()
    if complaint:
        complain(f"{complaint}. Ask the service itself: clustercheckd status")
    settings.require_usable()
    outcome = poll_once(settings.database(), settings.clustercheck_deadline)
    verdict = decide(
        outcome,
        0.0,
        settings.policy(),
        ManualSwitches(settings.clustercheck_disabled_file)(),
    )
    if as_json:
        node = dataclasses.asdict(outcome) if isinstance(outcome, NodeState) else None
        say(json.dumps({**dataclasses.asdict(verdict), "node": node}))
    else:
        say(str(verdict))
        if isinstance(outcome, PollFailure) and outcome.reason in _OF_THE_LOGIN:
            say(
                f"The login was to {settings.database()}, by user id {os.geteuid()}\n{_KEPT}"
            )
        if not verdict.available:
            say(f"For what to do, see {verdict.reason} in {REASONS_PAGE}")
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def check_settings(load: Load, *, showing: bool) -> int:
    """Check what the service would check at its start, as its user; return the exit status.

    showing: whether to print what sets each setting. Raises `SettingsError`.
    """
    # Before the settings are loaded: the service must be able to read the env file too.
    if complaint := _become_service_user():
        complain(complaint)
    settings, warnings, used = load(strict=True)
    for line in warnings:
        complain(line)
    settings.policy()
    check_listening(settings)
    database = settings.database()
    # Only the service can read what LoadCredential= gives it.
    if not any(str(value).startswith("/run/credentials/") for _, value in settings):
        database.target()
    if showing:
        for name in Settings.model_fields:
            say(_shown(name, used.get(name)))
        # With what the option file and defaults add.
        say(f"# database: {database}")
    say("the settings can be used")
    return DONE


def _shown(name: str, variable: Variable | None) -> str:
    """Return a setting as a line of an env file; a default as a comment."""
    if variable is None:
        return f"#{name.upper()}={default_of(name)}  # default"
    # A URL in MYSQL_HOST has its password before the @.
    is_secret = name in WITHOUT_FLAG or "@" in variable.value
    value = "(hidden)" if is_secret else one_line(variable.value)
    return f"{name.upper()}={value}  # {variable.where or 'environment'}"


def _become_service_user() -> str | None:
    """Continue as the service's user, so that files and unix_socket accounts are the service's.

    Return None, or why the login is not the service's.
    """
    try:
        user = pwd.getpwnam(_SERVICE_USER)
    except KeyError:
        return None
    try:
        if os.geteuid() != user.pw_uid:
            os.initgroups(user.pw_name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
    except OSError:
        other = f"not as the service's user {_SERVICE_USER}"
        return f"this runs as user id {os.geteuid()}, {other}: run it as root"
    return None
