"""`clustercheckd drain` and `undrain`: create or remove the disabled file, and ask the service whether it sees that."""

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from app.commands.asking import NoAnswerError, ask_all
from app.commands.standard_streams import complain, say
from app.commands.targets import own_target
from app.reason import Reason
from app.settings import Settings
from app.switches import ManualSwitches

DONE, FAILED = 0, 1
"""Exit statuses. `FAILED`: the file could not be changed, or the service does not see the change."""

_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Answer:
    service: str
    status: int
    reason: str
    detail: str


def drain(settings: Settings) -> int:
    """Create the disabled file and confirm that the service sees it. Return the exit status."""
    path = Path(settings.clustercheck_disabled_file)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        seen = ManualSwitches(str(path))().disabled_file
        if seen is None:
            complain(f"CLUSTERCHECK_DISABLED_FILE: {path} is a link to nowhere")
            return FAILED
        say(seen)
    except OSError as fault:
        complain(f"CLUSTERCHECK_DISABLED_FILE: {path}: {fault.strerror}")
        return FAILED
    else:
        say(f"created {path}; to remove it, type: clustercheckd undrain")
    return _confirm(settings, drained=True)


def undrain(settings: Settings) -> int:
    """Remove the disabled file and confirm that the service sees that. Return the exit status."""
    path = Path(settings.clustercheck_disabled_file)
    try:
        path.unlink()
    except FileNotFoundError:
        say(f"{path} does not exist")
    except OSError as fault:
        complain(f"CLUSTERCHECK_DISABLED_FILE: {path}: {fault.strerror}")
        return FAILED
    else:
        say(f"removed {path}")
    return _confirm(settings, drained=False)


def _confirm(settings: Settings, *, drained: bool) -> int:
    try:
        answer = _ask(settings)
    except NoAnswerError as fault:
        complain(f"not confirmed: {fault}")
        return FAILED
    if drained and answer.reason != Reason.DISABLED:
        path = settings.clustercheck_disabled_file
        complain(f"{answer.service} answers {answer.status} {answer.reason}: it does not see {path}")
        return FAILED
    if not drained and answer.reason == Reason.DISABLED:
        complain(f"{answer.service} still answers {answer.status} {answer.detail}")
        return FAILED
    say(f"{answer.service} answers {answer.status} {answer.reason}{': no new traffic' if drained else ''}")
    return DONE


def _ask(settings: Settings) -> _Answer:
    """Send a health check to the service at its configured address.

    Raises `NoAnswerError`, also if another program answers. The message is a line.
    """
    target = own_target(settings)
    # The service may hold a 200 until its current poll has ended.
    [reply] = ask_all([target], "/", _ANSWER_SECONDS + settings.clustercheck_deadline)
    if isinstance(reply, NoAnswerError):
        if not _lets_in(settings, target.host):
            message = f"{target.name} does not answer {target.host}, which is not in CLUSTERCHECK_ALLOW_FROM"
        else:
            message = f"{target.name}: {reply}"
        raise NoAnswerError(message)
    reason = reply.headers.get("x-clustercheck-reason")
    if reason is None:
        message = f"what answers on {target.name} is not clustercheckd (no x-clustercheck-reason)"
        raise NoAnswerError(message)
    lines = reply.body.decode("ascii", "replace").splitlines()
    return _Answer(target.name, reply.status, reason, lines[-1] if lines else "")


def _lets_in(settings: Settings, host: str) -> bool:
    # On an address of this host, the client connects from that same address.
    networks = settings.allowed_networks()
    try:
        address = ip_address(host)
    except ValueError:
        return True
    return networks is None or any(address in network for network in networks)
