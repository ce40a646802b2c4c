"""`clustercheckd check`: poll the node once, as the service would."""

import dataclasses
import json
import os
import pwd

from app.commands.exit_status import AVAILABLE, DONE, NOT_AVAILABLE
from app.commands.output import complain, say
from app.database.poller import poll_once
from app.settings.settings import Settings
from app.settings.switches import ManualSwitches
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import decide

_SERVICE_USER = "clustercheck"
"""The user of the packages' unit."""
_ADVICE = (
    "Does the running service log in? See: clustercheckd status. If so, do not change the account;"
    ' if not, see the section "The account" of docs/install.md'
)


def check(settings: Settings, *, as_json: bool) -> int:
    """Poll the node once and print the verdict; return the exit status. Raises `SettingsError`."""
    complaint = _become_service_user()
    if complaint:
        complain(f"{complaint}. Ask the service itself: clustercheckd status")
    settings.require_login()
    outcome = poll_once(settings.database(), settings.clustercheck_deadline)
    verdict = decide(
        outcome, 0.0, settings.policy(), ManualSwitches(settings.clustercheck_disabled_file)()
    )
    if as_json:
        node = dataclasses.asdict(outcome) if isinstance(outcome, NodeState) else None
        say(json.dumps({**dataclasses.asdict(verdict), "node": node}))
    else:
        say(str(verdict))
        refused = (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED)
        if isinstance(outcome, PollFailure) and outcome.reason in refused:
            say(f"The login was to {settings.database()}, by user id {os.geteuid()}\n{_ADVICE}")
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def check_settings(settings: Settings) -> int:
    """Check what the service would check at its start, as its user; return the exit status.

    Raises `SettingsError`.
    """
    _become_service_user()
    # systemd hides LoadCredential= from ExecReload=. The service, which has it, checks the login
    # then.
    settings.policy()
    database = settings.database()
    if not any(str(value).startswith("/run/credentials/") for _, value in settings):
        database.login()
    say("the settings can be used")
    return DONE


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
        return f"check logs in as user id {os.geteuid()}, {other}: run it as root"
    return None
