"""`clustercheckd check`: poll the node once, as the service would."""

import os
import pwd

from app.commands.exit_status import AVAILABLE, NOT_AVAILABLE
from app.commands.output import SEE_REASONS, complain, say
from app.database.connection import prepare_for
from app.database.poller import poll_once
from app.settings.disabled_file import switches_now
from app.settings.source import Source
from app.verdict.node_state import ELSEWHERE, NodeState, PollFailure
from app.verdict.rules import verdicts


def check(source: Source) -> int:
    """Poll the node once and print the verdict; return the exit status. Raises `SettingsError`."""
    settings, warnings, *_ = source.load()
    complain(*warnings)
    _become_service_user()
    # Without a login, there is no verdict.
    settings.target()
    outcome = poll_once(settings, settings.clustercheck_deadline)
    switches = switches_now(settings.clustercheck_disabled_file)
    verdict, *rest = verdicts(outcome, 0.0, settings.policy(), switches)
    say(str(verdict))
    if isinstance(outcome, NodeState) and outcome.elsewhere:
        complain(ELSEWHERE)
    for one in rest:
        if switches.any_on or not one.available:
            say(f"otherwise {one.reason}: {one.detail}")
    if isinstance(outcome, PollFailure):
        say(
            f"The login was to {settings.login_words}, by user id {os.geteuid()}\n"
            "A running service keeps its session, and may find the node available:"
            " clustercheckd status"
        )
    if not verdict.available:
        say(SEE_REASONS)
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def _become_service_user() -> None:
    """Continue as the service's user, so that files and unix_socket accounts are the service's.

    Otherwise say that they are not.
    """
    try:
        # The user of the packages' unit.
        user = pwd.getpwnam("clustercheck")
        if os.geteuid() != user.pw_uid:
            # That user may not be able to read the files of the program.
            prepare_for(None)
            os.initgroups(user.pw_name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
    except KeyError:
        return
    except OSError:
        other = "not as the service's user clustercheck: run it as root"
        complain(f"this runs as user id {os.geteuid()}, {other}")
