"""`clustercheckd check`: poll the node once, as the service would."""

import asyncio
import logging
import os

from app.commands.as_service import become_service
from app.commands.exit_status import AVAILABLE, NOT_AVAILABLE
from app.commands.output import SEE_REASONS, complain, say
from app.commands.unit import STOPPED, main_pid
from app.database.poller import poll_once
from app.settings.disabled_file import switches_now
from app.settings.error import SettingsError
from app.settings.listening import listening_socket
from app.settings.settings import Settings
from app.settings.source import Source
from app.verdict.node_state import ELSEWHERE, NodeState, PollFailure
from app.verdict.rules import verdicts


def check(source: Source) -> int:
    """Poll the node once and print the verdict; return the exit status. Raises `SettingsError`."""
    pid = main_pid()
    become_service(pid)
    settings, warnings, *_ = source.load()
    complain(*warnings)
    _tell_of_credentials(settings)
    if pid == STOPPED:
        _tell_of_port(settings)
    # Without a login, there is no verdict.
    settings.target()
    # What the poller logs is told below.
    logging.disable()
    outcome = asyncio.run(poll_once(settings, settings.clustercheck_deadline))
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


def _tell_of_credentials(settings: Settings) -> None:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = settings.mysql_password_file or ""
    if folder and path.startswith(f"{folder}/"):
        complain(
            f"MYSQL_PASSWORD_FILE: {path} is systemd's copy from the service's start; a restart"
            " reads the file of LoadCredential= again"
        )


def _tell_of_port(settings: Settings) -> None:
    """Tell whether the service could not listen."""
    try:
        listening_socket(settings).close()
    except SettingsError as fault:
        complain(str(fault))
