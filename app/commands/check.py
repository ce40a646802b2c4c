"""`clustercheckd check`: poll the node once, as the service would."""

import os
import pwd
from dataclasses import replace

from app.commands.asking import ask, own_address
from app.commands.exit_status import AVAILABLE, DONE, FAILED, NOT_AVAILABLE
from app.commands.output import REASONS_PAGE, complain, say
from app.database.connection import prepare_for
from app.database.poller import poll_once
from app.settings.disabled_file import switches_now
from app.settings.listening import listening_socket
from app.settings.settings import Settings
from app.settings.source import Source
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.rules import Switches, decide


def check(source: Source) -> int:
    """Poll the node once and print the verdict; return the exit status. Raises `SettingsError`."""
    settings, warnings = source.load()
    complain(*warnings)
    _become_service_user()
    # Without a login, there is no verdict.
    settings.target()
    outcome = poll_once(settings, settings.clustercheck_deadline)
    switches = switches_now(settings.clustercheck_disabled_file)
    verdict, otherwise = (
        decide(outcome, 0.0, settings.policy(), one) for one in (switches, Switches())
    )
    worst = verdict if otherwise.available else otherwise
    say(str(verdict))
    if switches.any_on:
        say(f"otherwise {otherwise.reason}: {otherwise.detail}")
    if isinstance(outcome, PollFailure):
        say(
            f"The login was to {settings.login_words}, by user id {os.geteuid()}\n"
            "A running service keeps its session, and may find the node available:"
            " clustercheckd status"
        )
    if not verdict.available:
        say(f"For what to do, see {worst.reason} in {REASONS_PAGE}")
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def check_settings(source: Source) -> int:
    """Check what the service would check at its start, as its user; return the exit status.

    It is 1 if the running service would lose the node. Raises `SettingsError`.
    """
    # Before the settings are loaded: the service must be able to read the env file too.
    _become_service_user()
    settings, warnings = source.load(strict=True)
    complain(*warnings)
    listening_socket(replace(settings, clustercheck_port=0)).close()
    # Only the service can read what LoadCredential= gives it.
    if "'/run/credentials/" not in repr(settings):
        settings.target()
    if lost := _lost_with(settings, source):
        complain(f"the service can read the node, and not with these settings: {lost}")
        return FAILED
    say("the settings can be used")
    return DONE


def _lost_with(settings: Settings, source: Source) -> str:
    """Return why the node cannot be read, if the service that runs here can read it."""
    asked = settings, settings.clustercheck_deadline
    outcome = poll_once(*asked)
    if isinstance(outcome, PollFailure):
        # One login may be slow.
        outcome = poll_once(*asked)
    [running] = ask([own_address(source)])
    if isinstance(outcome, NodeState) or running.node == NodeState():
        return ""
    return f"{outcome.reason}: {outcome.detail}"


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
