"""`clustercheckd migrate`: xinetd's service and the script's variables become an env file."""

import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from app.commands.exit_status import DONE, FAILED, MISUSED
from app.script.migrate import migrate
from app.settings.error import SettingsError
from app.settings.variables import read_env_file

SECRET = "s3cret&word"
# After Percona's packages, and Red Hat's.
SERVICE = """# description: mysqlchk
service mysqlchk
{
        disable         = no
        type            = UNLISTED
        port            = 9200
        user            = nobody
        server          = SCRIPT
        log_on_failure  += USERID
        only_from       = 0.0.0.0/0
}
"""
SCRIPT = """#!/bin/bash
# MYSQL_USERNAME=comment
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
ERR_FILE="${4:-/dev/null}"
EXTRA_ARGS="--user=$MYSQL_USERNAME --password=${MYSQL_PASSWORD}"
if [ -e /var/tmp/clustercheck.disabled ]; then exit 1; fi
[ "$AVAILABLE_WHEN_DONOR" = 1 ] && [ "${AVAILABLE_WHEN_READONLY:-1}" == 1 ]
if [ -f SYSCONFIG ]; then . SYSCONFIG; fi
"""

# The lines of those that are downloaded today.
SCRIPT_OF_TODAY = """#!/bin/bash
if [[ $1 == '-h' || $1 == '--help' ]]; then echo "Usage: $0 <user> <pass>"; exit; fi
if [ -e "/var/tmp/clustercheck.disabled" ]; then exit 1; fi
set -e
if [ -f SYSCONFIG ]; then
        . SYSCONFIG
fi
MYSQL_USERNAME="${MYSQL_USERNAME:=-clustercheckuser}"
MYSQL_PASSWORD="${MYSQL_PASSWORD-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}
ERR_FILE="${ERR_FILE:-/dev/null}"
AVAILABLE_WHEN_READONLY=${AVAILABLE_WHEN_READONLY:-1}
DEFAULTS_EXTRA_FILE=${DEFAULTS_EXTRA_FILE:-/etc/my.cnf}
# With $2 in a comment
if [[ -n "$MYSQL_USERNAME" ]]; then EXTRA_ARGS="$EXTRA_ARGS --user=${MYSQL_USERNAME}"; fi
mysql $EXTRA_ARGS 2>${ERR_FILE} | awk '{if (NR!=1){print $2}}'
"""


class Host:
    """A host's files below a directory, and what migrate printed."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.service, self.script = directory / "xinetd.d/mysqlchk", directory / "clustercheck"
        self.sysconfig, self.password = directory / "sysconfig", directory / "password"
        self.env_file, self.option_file = directory / "clustercheckd.env", directory / "my.cnf"
        self._capsys = capsys
        self.service.parent.mkdir()
        self.write(self.script, SCRIPT)

    def write(self, path: Path, text: str) -> Path:
        """Write a file, with the paths filled in."""
        path.write_text(
            text.replace("SCRIPT", str(self.script)).replace("SYSCONFIG", str(self.sysconfig))
        )
        return path

    def serve(self, *more: str, old: str = "", new: str = "") -> None:
        """Write the xinetd service, with further lines or changes."""
        self.write(
            self.service,
            SERVICE.replace(old, new).replace("}", "".join(f" {line}\n" for line in more) + "}"),
        )

    def files(self) -> list[str]:
        """Return the names of the files."""
        return sorted(path.name for path in self.directory.iterdir())

    def migrate(self, path: object = "", output: object = "", password: str = "") -> int:
        """Run the command; return the exit status."""
        files = (str(path), str(output), password or str(self.password))
        try:
            code = migrate(
                *files, xinetd=str(self.service.parent), configuration_files=[str(self.sysconfig)]
            )
            self.text, self.error = self._capsys.readouterr()
        except SettingsError as fault:
            code, self.text, self.error = MISUSED, self._capsys.readouterr().out, str(fault)
        assert SECRET not in self.text + self.error
        return code

    def settings(self, path: object = "") -> dict[str, str]:
        """Run the command; return the settings, with the password in place of its file."""
        assert self.migrate(path, self.env_file) == DONE, self.error
        seen = {variable.name: variable.value for variable in read_env_file(str(self.env_file))[0]}
        if "MYSQL_PASSWORD_FILE" in seen:
            assert seen["MYSQL_PASSWORD_FILE"] == str(self.password)
            seen["MYSQL_PASSWORD_FILE"] = self.password.read_text().removesuffix("\n")
        return seen


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """Return a host with the script alone."""
    return Host(tmp_path, capsys)


def named(text: str) -> dict[str, str]:
    """Return the settings that a line of NAME=value words names."""
    return dict(word.split("=", 1) for word in text.split())


class TestXinetd:
    """xinetd.conf(5)."""

    def test_the_service_as_packages_install_it(self, host: Host) -> None:
        host.serve()
        for name in ("mysqlchk.rpmsave", "mysqlchk~"):
            host.write(host.directory / "xinetd.d" / name, SERVICE)
        host.write(host.directory / "xinetd.d/daytime", "service daytime\n{\n type = INTERNAL\n}\n")
        (host.directory / "xinetd.d/old").mkdir()
        seen = host.settings()
        seen.pop("DEFAULTS_EXTRA_FILE", None)  # the script's own default, where it can be read
        assert seen == named(
            "MYSQL_USERNAME=clustercheckuser MYSQL_PASSWORD_FILE=clustercheckpassword! AVAILABLE_WHEN_DONOR=0"
            " AVAILABLE_WHEN_READONLY=1 CLUSTERCHECK_PORT=9200 CLUSTERCHECK_ALLOW_FROM=0.0.0.0/0"
            " CLUSTERCHECK_ANY_PATH=1"
        )
        text = host.env_file.read_text()
        assert '# the script\'s default\nMYSQL_USERNAME="clustercheckuser"\n' in text
        assert f'# {host.service}, line 6 (port)\nCLUSTERCHECK_PORT="9200"\n' in text

    def test_its_arguments_take_precedence_over_the_file_and_the_file_over_env(
        self, host: Host
    ) -> None:
        host.option_file.touch(0o644)
        host.serve(
            "bind = 192.0.2.1",
            f"server_args = check {SECRET} 1 /var/log/cc.log 0 {host.option_file}",
            "env = MYSQL_USERNAME=x MYSQL_PORT=1 MYSQL_PORT=3307",
            "env += PATH=/bin CLUSTERCHECK_DEADLINE=2",
        )
        host.write(
            host.sysconfig, "MYSQL_HOST='db1'\nCLUSTERCHECK_DEADLINE=3\nAVAILABLE_WHEN_DONOR=0\n"
        )
        assert host.settings() == named(
            f"MYSQL_USERNAME=check MYSQL_PASSWORD_FILE={SECRET} MYSQL_HOST=db1 MYSQL_PORT=3307 AVAILABLE_WHEN_DONOR=1"
            f" AVAILABLE_WHEN_READONLY=0 DEFAULTS_EXTRA_FILE={host.option_file} CLUSTERCHECK_DEADLINE=3"
            " CLUSTERCHECK_HOST=192.0.2.1 CLUSTERCHECK_PORT=9200 CLUSTERCHECK_ALLOW_FROM=0.0.0.0/0"
            " CLUSTERCHECK_ANY_PATH=1"
        )
        for before, name, after in (
            (
                f"{host.sysconfig}, line 3",
                "AVAILABLE_WHEN_DONOR",
                f"{host.service}, line 12 (server_args)",
            ),
            (
                f"{host.service}, line 14 (env)",
                "CLUSTERCHECK_DEADLINE",
                f"{host.sysconfig}, line 2",
            ),
        ):
            line = f"{before}: {name} has another value in {after}, which is used here"
            assert f"clustercheckd: check: {line}\n" in host.error
            assert f"#   {line}\n" in host.env_file.read_text()

    @pytest.mark.parametrize(
        ("lines", "account"),
        [
            (["server_args = - 1 /dev/null 1 /no/file"], (None, None)),
            ([f"server_args = clustercheck {SECRET}"], ("clustercheck", SECRET)),
            (["server = /usr/bin/timeout", f"server_args = 5 SCRIPT me {SECRET}"], ("me", SECRET)),
            (["env = NOTE=NAMEINARGS", f"server_args = me {SECRET}"], ("me", SECRET)),
            (
                [
                    "server = /usr/sbin/tcpd",
                    "flags = NAMEINARGS",
                    f"server_args = SCRIPT me {SECRET}",
                ],
                ("me", SECRET),
            ),
        ],
    )
    def test_the_account_of_a_command(
        self, host: Host, lines: list[str], account: tuple[str, str]
    ) -> None:
        host.serve(*lines)
        seen = host.settings()
        assert (seen.get("MYSQL_USERNAME"), seen.get("MYSQL_PASSWORD_FILE")) == account
        assert host.password.exists() == (account[1] is not None)
        assert seen.get("DEFAULTS_EXTRA_FILE") != "/no/file"

    @pytest.mark.parametrize(
        ("only_from", "allowed"),
        [
            ("10.0.0.0/8 192.0.2.1", "10.0.0.0/8 192.0.2.1/32"),
            ("192.0.2.7/24 fd00::/8", "192.0.2.0/24 fd00::/8"),
            ("10.0.0.1\n only_from += 10.0.0.2", "10.0.0.1/32 10.0.0.2/32"),
            ("10.0.0.1\n only_from = 10.0.0.2", "10.0.0.2/32"),
            ("10.0.0.1 localhost", "10.0.0.1/32 127.0.0.1/32 ::1/128"),
            # An incomplete list would refuse a load balancer.
            ("10.0.0.1 10.1.0.0", None),
            ("10.0.0.1 lb1.example", None),
            ("192.0.2.{7,9}", None),
            ("", None),
        ],
    )
    def test_who_may_connect(self, host: Host, only_from: str, allowed: str | None) -> None:
        host.serve(old="0.0.0.0/0", new=only_from)
        assert host.settings().get("CLUSTERCHECK_ALLOW_FROM") == allowed
        assert ("need 127.0.0.1" in host.error) == (
            allowed is not None and "127.0.0.1" not in allowed
        )
        by_hand = "everybody may connect until you write CLUSTERCHECK_ALLOW_FROM by hand"
        assert (by_hand in host.error) == (allowed is None)

    def test_one_that_is_disabled_and_one_of_two_are_used_only_if_they_are_named(
        self, host: Host
    ) -> None:
        host.serve(old="= no", new="= yes")
        assert host.migrate() == FAILED
        assert host.settings(host.service)["CLUSTERCHECK_PORT"] == "9200"
        host.env_file.unlink()
        other = host.write(host.directory / "xinetd.d/other", SERVICE.replace("9200", "9201"))
        host.serve()
        assert (host.migrate(output=host.env_file), host.env_file.exists()) == (MISUSED, False)
        assert (
            f"{host.service}, line 8 (server): runs clustercheck\n{other}, line 8 (server): runs"
            in host.error
        )
        assert host.settings(other)["CLUSTERCHECK_PORT"] == "9201"


class TestScriptOfToday:
    """It ignores its arguments, and takes everything from variables."""

    @pytest.fixture(autouse=True)
    def _script(self, host: Host) -> None:
        host.write(host.script, SCRIPT_OF_TODAY)

    @pytest.mark.parametrize(
        "variables",
        ["", f"MYSQL_USERNAME=me\nMYSQL_PASSWORD={SECRET}\nAVAILABLE_WHEN_READONLY=0\n"],
    )
    def test_unmodified_it_leaves_nothing_to_check(self, host: Host, variables: str) -> None:
        host.serve()
        host.write(host.sysconfig, variables)
        seen = host.settings()
        assert seen["MYSQL_USERNAME"] == ("me" if variables else "clustercheckuser")
        assert seen["AVAILABLE_WHEN_READONLY"] == ("0" if variables else "1")
        assert "check: " not in host.error

    def test_its_arguments_which_it_ignores_are_told(self, host: Host) -> None:
        host.serve(f"server_args = me {SECRET} 0")
        host.settings()
        ignored = "the script may ignore these arguments, which are used here"
        assert f"check: {host.service}, line 11 (server_args): {ignored}\n" in host.error

    def test_a_default_that_somebody_changed_is_told(self, host: Host) -> None:
        host.write(host.script, SCRIPT_OF_TODAY.replace("DONOR:-0", "DONOR:-1"))
        host.serve()
        host.settings()
        line = "line 10: AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-1}"
        assert f"check: {host.script}, {line}\n" in host.error


HIDDEN = "not shown, because it may contain a password"


class TestLinesToCheck:
    """What the script sets by itself is for people to read."""

    def test_the_script_of_the_packages(self, host: Host) -> None:
        host.serve(f"server_args = me {SECRET}")
        host.settings()
        assert "check: " not in host.error
        # Another argument than the usual one, or a value that the script overwrites, is not what
        # migrate takes over.
        for line, more in (
            ("AVAILABLE_WHEN_READONLY=${3:-1}", ""),
            ("ERR_FILE=${4:-/dev/null}", "env = ERR_FILE=/log"),
        ):
            host.write(host.script, line)
            host.serve(f"server_args = me {SECRET}", more)
            assert host.migrate() == DONE
            assert f"check: {host.script}, line 1: {line}\n" in host.error

    def test_every_form_in_which_it_may_set_one_but_no_password_and_no_escape_sequence(
        self, host: Host
    ) -> None:
        forms = r"""
            MYSQL_HOST=db1
            export MYSQL_HOST=db1
            readonly MYSQL_HOST=db1
            declare -r MYSQL_HOST=db1
            MYSQL_HOST+=db1
            : "${AVAILABLE_WHEN_READONLY:=0}"
            : ${AVAILABLE_WHEN_READONLY=0}
            (( AVAILABLE_WHEN_DONOR = 1 ))
            read -r MYSQL_USERNAME MYSQL_HOST < /etc/account
            printf -v MYSQL_HOST %s db1
            for MYSQL_HOST in db1 db2; do
            unset MYSQL_HOST
            [ -f /etc/other ] && . /etc/other
            if true; then source "$other"; fi
            if [ -e "/run/node.disabled" ]; then
        """.strip().splitlines()
        secret = (
            f"ERR_FILE=a MYSQL_PASSWORD='{SECRET}'",
            f"MYSQL_HOST=a mysql -p{SECRET}",
            f"ERR_FILE=x PW={SECRET}",
        )
        shown = {form: form.strip() for form in forms} | dict.fromkeys(secret, HIDDEN)
        shown["MYSQL_HOST=\x1b[2J"] = "MYSQL_HOST=?[2J"
        host.write(host.script, "".join(f"# {line}\n{line}\n" for line in shown))
        host.serve()
        host.settings()
        lines = [
            f"check: {host.script}, line {2 * at}: {line}"
            for at, line in enumerate(shown.values(), 1)
        ]
        assert host.error.splitlines()[-len(lines) :] == [
            f"clustercheckd: {line}" for line in lines
        ]

        host.script.unlink()
        host.settings()
        assert (
            f"check: {host.script}: No such file or directory: it may set variables itself"
            in host.error
        )


class TestOutput:
    """What is written is whole and valid, and nothing that was there is lost."""

    def test_the_files_of_variables_alone(self, host: Host) -> None:
        host.write(host.sysconfig, f'MYSQL_PASSWORD="{SECRET}"\nMYSQL_HOST=db1\n')
        settings = host.settings()
        assert (settings["MYSQL_PASSWORD_FILE"], settings["MYSQL_HOST"]) == (SECRET, "db1")
        assert "check: found no port: write CLUSTERCHECK_PORT" in host.error

    def test_nothing_found_exits_with_1_and_touches_no_file(self, host: Host) -> None:
        before = host.files()
        assert (host.migrate(output=host.env_file), host.text) == (FAILED, "")
        assert "found nothing that runs clustercheck, and wrote no file" in host.error
        for path in ("/no/file", host.script):
            assert host.migrate(path) == MISUSED
            assert str(path) in host.error
        assert host.files() == before

    def test_what_was_there_is_kept(self, host: Host) -> None:
        host.serve(f"server_args = me {SECRET}")
        host.env_file.write_text("old")
        host.settings()
        modes = [path.stat().st_mode & 0o777 for path in (host.env_file, host.password)]
        assert modes == [0o640, 0o640]
        kept, made = Path(f"{host.env_file}.old"), host.env_file.read_text()
        assert kept.read_text() == "old"
        assert host.error.splitlines() == [
            f"clustercheckd: wrote {host.password}",
            f"clustercheckd: kept the file that was there as {kept}",
            f"clustercheckd: wrote {host.env_file}",
        ]
        host.settings()
        assert host.error == f"clustercheckd: {host.env_file} has these settings already\n"
        # What somebody has edited since then is not lost either.
        host.env_file.write_text(f"{made}AVAILABLE_WHEN_DONOR=1\n")
        assert host.migrate(output=host.env_file) == MISUSED
        assert host.error.startswith(f"{host.env_file} has changed, and {kept} exists")
        kept.unlink()
        host.password.write_text("another\n")
        assert host.settings()["MYSQL_PASSWORD_FILE"] == "another"
        assert f"check: {host.password} exists and stays as it is" in host.error
        # Without a file to write, it is printed.
        assert (host.migrate(), host.text) == (DONE, host.env_file.read_text())

    def test_without_an_output_it_writes_no_file(self, host: Host) -> None:
        host.serve(f"server_args = me {SECRET}")
        before = host.files()
        assert (host.migrate(), host.files()) == (DONE, before)
        assert f'MYSQL_PASSWORD_FILE="{host.password}"\n' in host.text
        assert f"check: {host.password} is written only with --output\n" in host.error

    def test_a_full_disk_leaves_no_part_of_a_file(self, host: Host) -> None:
        password = SECRET * 1000
        host.serve(f"server_args = me {password}")
        before, usual = host.files(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(password) // 2, usual[1]))
        try:
            code = host.migrate(output=host.env_file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert (code, host.error) == (MISUSED, f"{host.password}: File too large")
        assert host.files() == before

    def test_where_no_file_can_be_written_is_one_line(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.serve()
        missing = "/no/directory/file"
        for output, password, complaint in (
            (host.env_file, missing, f"{missing}: No such file or directory"),
            (missing, "", f"{missing}: No such file or directory"),
            ("/dev/null", "", "/dev/null is not a regular file"),
        ):
            assert host.migrate(output=output, password=password) == MISUSED
            assert host.error == complaint
            assert not host.env_file.exists()
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr("sys.stdout", full)
            assert (host.migrate(), host.error) == (MISUSED, "the env file is incomplete")

    @pytest.mark.parametrize(
        ("line", "refused"),
        [
            (
                "port = mysqlchk",
                "SERVICE, line 11 (port): CLUSTERCHECK_PORT: mysqlchk: ",
            ),
            (
                "server_args = me pw 2",
                "SERVICE, line 11 (server_args): AVAILABLE_WHEN_DONOR must be 0 or 1",
            ),
            (
                "server_args = me pw 1 /x yes",
                "SERVICE, line 11 (server_args): AVAILABLE_WHEN_READONLY must be 0 or 1",
            ),
            (
                "env = CLUSTERCHECK_DEADLINE=99",
                "SERVICE, line 11 (env): CLUSTERCHECK_DEADLINE: 99: ",
            ),
            ("env = MYSQL_HOST=db:x", "MYSQL_HOST=db:x is not a host name"),
            (
                "env = DEFAULTS_EXTRA_FILE=/dev/null",
                "DEFAULTS_EXTRA_FILE: /dev/null is not a regular file",
            ),
        ],
    )
    def test_a_value_that_the_service_refuses_is_named(
        self, host: Host, line: str, refused: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(
            "MYSQL_PORT", "the environment of migrate itself is not that of the service"
        )
        host.serve(line)
        before = host.files()
        assert (host.migrate(output=host.env_file), host.files()) == (MISUSED, before)
        assert host.error.startswith(refused.replace("SERVICE", str(host.service)))

    @hypothesis_settings(deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
    def test_every_value_is_read_again_as_it_was_or_refused(self, value: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            variables, env_file = Path(directory, "variables"), Path(directory, "env")
            quoted = value.replace("'", "'\\''")
            variables.write_text(f"MYSQL_USERNAME='{quoted}'\nMYSQL_PASSWORD=\n")
            files = ("", str(env_file), "", directory, [str(variables)])
            if not value.isprintable() or set(value) & set('\\$`"'):
                with pytest.raises(
                    SettingsError, match="MYSQL_USERNAME cannot be written to an env file"
                ):
                    migrate(*files)
            else:
                assert migrate(*files) == DONE
                seen = {
                    variable.name: variable.value for variable in read_env_file(str(env_file))[0]
                }
                assert seen["MYSQL_USERNAME"] == value
