"""`clustercheckd migrate`: xinetd's service and the script's variables become an env file."""

import resource
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.exit_status import FAILED
from app.commands.migrate import migrate
from app.settings_error import SettingsError
from app.variables import read_env_file

SECRET = "s3cret&word"
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
# After Percona's packages, and Red Hat's; then what administrators write.
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


class Host:
    """A host's files below a directory, and what migrate printed."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.service, self.script = directory / "xinetd.d/mysqlchk", directory / "clustercheck"
        self.sysconfig, self.password = directory / "sysconfig", directory / "password"
        self.env_file, self.option_file = directory / "clustercheckd.env", directory / "my.cnf"
        self._capsys = capsys
        self.service.parent.mkdir()

    def write(self, path: Path, text: str) -> Path:
        """Write a file, with the paths filled in."""
        path.write_text(text.replace("SCRIPT", str(self.script)).replace("SYSCONFIG", str(self.sysconfig)))
        return path

    def serve(self, more: str = "", old: str = "", new: str = "") -> Path:
        """Write the xinetd service, with further lines or changes."""
        return self.write(self.service, SERVICE.replace(old, new).replace("}", f"{more}\n}}"))

    def migrate(self, *arguments: str | Path) -> int:
        """Run the command as `app.__main__` does; return the exit status."""
        words = ["--password-file", str(self.password), *map(str, arguments)]
        try:
            code = migrate(words, (f"{self.directory}/xinetd.conf", f"{self.service.parent}"), (f"{self.sysconfig}",))
            self.text, self.error = self._capsys.readouterr()
        except SettingsError as fault:
            code, self.text, self.error = 2, self._capsys.readouterr().out, str(fault)
        assert SECRET not in self.text + self.error
        return code

    def settings(self, *arguments: str | Path) -> dict[str, str]:
        """Run the command; return the settings, with the password in place of its file."""
        assert self.migrate(*arguments, "--output", self.env_file) == 0, self.error
        seen = {variable.name: variable.value for variable in read_env_file(str(self.env_file))[0]}
        if "MYSQL_PASSWORD_FILE" in seen:
            assert seen["MYSQL_PASSWORD_FILE"] == str(self.password)
            seen["MYSQL_PASSWORD_FILE"] = self.password.read_text().removesuffix("\n")
        return seen


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """Return a host with the script alone."""
    host = Host(tmp_path, capsys)
    host.write(host.script, SCRIPT)
    return host


DEFAULT = {
    "MYSQL_USERNAME": "clustercheckuser",
    "MYSQL_PASSWORD_FILE": "clustercheckpassword!",
    "AVAILABLE_WHEN_DONOR": "0",
    "AVAILABLE_WHEN_READONLY": "1",
    "CLUSTERCHECK_ANY_PATH": "1",
}


class TestXinetd:
    """xinetd.conf(5)."""

    def test_the_service_as_packages_install_it(self, host: Host) -> None:
        host.serve()
        host.write(host.directory / "xinetd.d/mysqlchk.rpmsave", SERVICE)
        host.write(host.directory / "xinetd.d/mysqlchk~", SERVICE)
        host.write(host.directory / "xinetd.d/daytime", "service daytime\n{\n type = INTERNAL\n}\n")
        host.write(host.directory / "xinetd.conf", "defaults\n{\n}\nincludedir /etc/xinetd.d\n")
        expected = {**DEFAULT, "CLUSTERCHECK_PORT": "9200", "CLUSTERCHECK_ALLOW_FROM": "0.0.0.0/0"}
        assert {name: value for name, value in host.settings().items() if name != "DEFAULTS_EXTRA_FILE"} == expected
        text = host.env_file.read_text()
        assert "# the script's default\nMYSQL_USERNAME=" in text
        assert f"# {host.service}, line 6 (port)\nCLUSTERCHECK_PORT=" in text

    def test_its_arguments_take_precedence_over_the_file_and_the_file_over_env(self, host: Host) -> None:
        host.option_file.touch(0o644)
        host.serve(
            f" bind = 192.0.2.1\n server_args = check {SECRET} 1 /var/log/cc.log 0 {host.option_file}\n"
            " env = MYSQL_USERNAME=x MYSQL_PORT=1 MYSQL_PORT=3307\n env += PATH=/bin CLUSTERCHECK_DEADLINE=2"
        )
        host.write(host.sysconfig, "MYSQL_HOST='db1'\nCLUSTERCHECK_DEADLINE=3\nAVAILABLE_WHEN_DONOR=0\n")
        assert host.settings() == {
            "MYSQL_USERNAME": "check",
            "MYSQL_PASSWORD_FILE": SECRET,
            "MYSQL_HOST": "db1",
            "MYSQL_PORT": "3307",
            "AVAILABLE_WHEN_DONOR": "1",
            "AVAILABLE_WHEN_READONLY": "0",
            "DEFAULTS_EXTRA_FILE": str(host.option_file),
            "CLUSTERCHECK_DEADLINE": "3",
            "CLUSTERCHECK_HOST": "192.0.2.1",
            "CLUSTERCHECK_PORT": "9200",
            "CLUSTERCHECK_ALLOW_FROM": "0.0.0.0/0",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert "found no service of xinetd" not in host.error
        for before, name, after in (
            (f"{host.sysconfig}, line 3", "AVAILABLE_WHEN_DONOR", f"{host.service}, line 12 (server_args)"),
            (f"{host.service}, line 14 (env)", "CLUSTERCHECK_DEADLINE", f"{host.sysconfig}, line 2"),
        ):
            line = f"{before}: {name} has another value in {after}, which is used here"
            assert f"clustercheckd: check: {line}\n" in host.error
            assert f"#   {line}\n" in host.env_file.read_text()

    @pytest.mark.parametrize(
        ("arguments", "user", "password"),
        [
            (" server_args = - 1 /dev/null 1 /no/file", None, None),
            (f" server_args = clustercheck {SECRET}", "clustercheck", SECRET),
            (f" flags = REUSE NAMEINARGS\n server_args = clustercheck me {SECRET}", "me", SECRET),
            (f" server = /usr/bin/timeout\n server_args = 5 SCRIPT me {SECRET}", "me", SECRET),
            (f" server = /usr/sbin/tcpd\n flags = NAMEINARGS\n server_args = SCRIPT me {SECRET}", "me", SECRET),
        ],
    )
    def test_the_account_of_a_command(self, host: Host, arguments: str, user: str | None, password: str | None) -> None:
        host.serve(arguments)
        seen = host.settings()
        assert (seen.get("MYSQL_USERNAME"), seen.get("MYSQL_PASSWORD_FILE")) == (user, password)
        assert "DEFAULTS_EXTRA_FILE" not in seen or user
        assert host.password.exists() == (password is not None)

    @pytest.mark.parametrize(
        ("only_from", "allowed"),
        [
            ("10.0.0.0/8 192.0.2.1", "10.0.0.0/8 192.0.2.1/32"),
            ("192.0.2.7/24 fd00::/8", "192.0.2.0/24 fd00::/8"),
            ("localhost", "127.0.0.1/32 ::1/128"),
            ("10.0.0.1\n only_from += 10.0.0.2", "10.0.0.1/32 10.0.0.2/32"),
            ("10.0.0.1\n only_from = 10.0.0.2", "10.0.0.2/32"),
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
        by_hand = "everybody may connect until you write CLUSTERCHECK_ALLOW_FROM by hand"
        assert (by_hand in host.error) == (allowed is None)

    def test_one_without_a_port_or_a_list_of_clients(self, host: Host) -> None:
        host.serve(old="        port            = 9200\n")
        host.write(host.service, host.service.read_text().replace("only_from", "no_access"))
        assert not {"CLUSTERCHECK_PORT", "CLUSTERCHECK_HOST", "CLUSTERCHECK_ALLOW_FROM"} & set(host.settings())
        assert "xinetd takes the port from /etc/services: write CLUSTERCHECK_PORT by hand" in host.error

    def test_one_that_is_disabled_is_used_only_if_it_is_named(self, host: Host) -> None:
        host.serve(old="= no", new="= yes")
        assert host.migrate() == FAILED
        assert host.settings(host.service)["CLUSTERCHECK_PORT"] == "9200"

    def test_of_two_the_administrator_names_one(self, host: Host) -> None:
        other = host.write(host.directory / "xinetd.d/other", SERVICE.replace("9200", "9201"))
        host.serve()
        assert (host.migrate("--output", host.env_file), host.env_file.exists()) == (2, False)
        assert f"{host.service}, line 8 (server): runs clustercheck\n{other}, line 8 (server): runs" in host.error
        assert host.settings(other)["CLUSTERCHECK_PORT"] == "9201"


class TestLinesToCheck:
    """What the script sets by itself is for people to read."""

    def test_the_script_of_the_packages(self, host: Host) -> None:
        host.serve(f" server_args = me {SECRET}")
        host.settings()
        lines = [
            f'{host.script}, line 3: MYSQL_USERNAME="${{1-clustercheckuser}}"',
            f"{host.script}, line 4: not shown, because it may contain a password",
            f'{host.script}, line 5: ERR_FILE="${{4:-/dev/null}}"',
        ]
        assert host.error.splitlines()[-3:] == [f"clustercheckd: check: {line}" for line in lines]
        assert host.env_file.read_text().splitlines()[-4:] == ["# Check these:", *(f"#   {line}" for line in lines)]

    @pytest.mark.parametrize(
        "line",
        [
            "MYSQL_HOST=db1",
            "  export MYSQL_HOST=db1",
            "readonly MYSQL_HOST=db1",
            "declare -r MYSQL_HOST=db1",
            "MYSQL_HOST+=db1",
            ': "${AVAILABLE_WHEN_READONLY:=0}"',
            ": ${AVAILABLE_WHEN_READONLY=0}",
            "(( AVAILABLE_WHEN_DONOR = 1 ))",
            "read -r MYSQL_USERNAME MYSQL_HOST < /etc/account",
            "printf -v MYSQL_HOST %s db1",
            "for MYSQL_HOST in db1 db2; do",
            "unset MYSQL_HOST",
            "[ -f /etc/other ] && . /etc/other",
            'if true; then source "$other"; fi',
            'if [ -e "/run/node.disabled" ]; then',
        ],
    )
    def test_every_form_in_which_it_may_set_one(self, host: Host, line: str) -> None:
        host.write(host.script, f"#!/bin/sh\n# {line}\necho\n{line}\n")
        host.serve()
        host.settings()
        assert host.error.splitlines()[-1] == f"clustercheckd: check: {host.script}, line 4: {line.strip()}"
        assert f"{host.script}, line 2" not in host.error

    @pytest.mark.parametrize(
        "line",
        [f"MYSQL_USERNAME=a MYSQL_PASSWORD='{SECRET}'", f"MYSQL_HOST=db1 mysql -p{SECRET}", f"ERR_FILE=x PW={SECRET}"],
    )
    def test_none_that_may_contain_a_password_is_shown(self, host: Host, line: str) -> None:
        host.write(host.script, line)
        host.serve()
        host.settings()
        assert f"check: {host.script}, line 1: not shown, because it may contain a password\n" in host.error

    def test_a_script_that_cannot_be_read_and_escape_sequences(self, host: Host) -> None:
        host.script.unlink()
        host.serve()
        host.settings()
        assert f"check: {host.script}: No such file or directory: it may set variables itself" in host.error
        host.script.write_text("MYSQL_HOST=\x1b[2J\n")
        host.settings()
        assert "line 1: MYSQL_HOST=?[2J\n" in host.error


class TestOutput:
    """What is written is whole and valid, or nothing is written."""

    def test_the_files_of_variables_alone(self, host: Host) -> None:
        host.write(host.sysconfig, f'MYSQL_USERNAME="check"\nMYSQL_PASSWORD="{SECRET}"\nMYSQL_HOST=$(hostname)x\n')
        assert host.migrate() == 2
        assert host.error == f"{host.sysconfig}, line 3: MYSQL_HOST cannot be written to an env file: set it by hand"
        more = host.write(host.directory / "more", "MYSQL_HOST=db1\n")
        seen = host.settings(more)
        assert (seen["MYSQL_USERNAME"], seen["MYSQL_PASSWORD_FILE"], seen["MYSQL_HOST"]) == ("check", SECRET, "db1")
        assert "CLUSTERCHECK_ANY_PATH" not in seen
        assert "check: found no service of xinetd: write CLUSTERCHECK_PORT and CLUSTERCHECK_ALLOW_FROM" in host.error
        assert f"check: {host.sysconfig}, line 3: MYSQL_HOST is used as written" in host.error

    def test_nothing_found_exits_with_1_and_touches_no_file(self, host: Host) -> None:
        host.env_file.write_text("MYSQL_HOST=as_it_was\n")
        before = sorted(host.directory.iterdir())
        assert (host.migrate("--output", host.env_file), host.text) == (FAILED, "")
        assert (
            "found nothing that runs clustercheck, and wrote no file; name it: clustercheckd migrate PATH" in host.error
        )
        assert (host.env_file.read_text(), sorted(host.directory.iterdir())) == ("MYSQL_HOST=as_it_was\n", before)
        assert (host.migrate("/no/file"), host.error) == (2, "/no/file: No such file or directory")
        assert host.migrate(host.script) == 2
        assert host.error.startswith(f"{host.script} is a script: name the xinetd service that runs it")

    def test_both_files_are_for_the_services_group_and_the_password_is_never_overwritten(self, host: Host) -> None:
        host.serve(f" server_args = me {SECRET}")
        host.env_file.write_text("old")
        host.settings()
        for path in (host.env_file, host.password):
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert f"wrote the password to {host.password}\n" in host.error
        assert f"wrote {host.env_file}\n" in host.error
        host.password.write_text("another\n")
        assert host.settings()["MYSQL_PASSWORD_FILE"] == "another"
        assert f"check: {host.password} exists and stays as it is: it must contain the password\n" in host.error

    def test_without_output_the_env_file_is_printed(self, host: Host) -> None:
        host.serve(f" server_args = me {SECRET}")
        host.settings()
        assert host.migrate() == 0
        stays = f"#   {host.password} exists and stays as it is: it must contain the password\n"
        assert host.text == host.env_file.read_text() + stays

    @pytest.mark.parametrize(("password", "full"), [(SECRET, "clustercheckd.env"), (SECRET * 1000, "password")])
    def test_a_full_disk_leaves_neither_file(self, host: Host, password: str, full: str) -> None:
        limit = len(password) // 2
        host.serve(f" server_args = me {password}")
        words = ["migrate", "--output", str(host.env_file), "--password-file", str(host.password), str(host.service)]
        done = subprocess.run(
            [sys.executable, "-B", "-m", "app", *words],  # -B: the limit would cut its own bytecode off
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.endswith(f"clustercheckd: {host.directory / full}: File too large\n")
        assert sorted(path.name for path in host.directory.iterdir()) == ["clustercheck", "xinetd.d"]

    def test_a_full_standard_output_is_a_failure(self, host: Host) -> None:
        host.serve()
        words = ["migrate", "--password-file", str(host.password), str(host.service)]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "app", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 2
        assert "clustercheckd: standard output: No space left on device: the env file is incomplete\n" in done.stderr

    def test_where_no_file_can_be_written_is_one_line_and_neither_is(self, host: Host) -> None:
        host.serve()
        before = sorted(host.directory.iterdir())
        missing = "/no/directory/file"
        for arguments, complaint in (
            (["--output", missing], f"{missing}: No such file or directory"),
            (["--output", "/dev/null"], "/dev/null is not a regular file"),
            (["--output", host.env_file, "--password-file", missing], f"{missing}: No such file or directory"),
        ):
            assert (host.migrate(*arguments), host.error) == (2, complaint)
            assert sorted(host.directory.iterdir()) == before

    @pytest.mark.parametrize(
        ("old", "new", "refused"),
        [
            ("9200", "mysqlchk", "line 6 (port): CLUSTERCHECK_PORT: "),
            ("}", " server_args = me pw 2\n}", "line 11 (server_args): AVAILABLE_WHEN_DONOR must be 0 or 1"),
            ("}", " server_args = me pw 1 /x yes\n}", "line 11 (server_args): AVAILABLE_WHEN_READONLY must be 0 or 1"),
            ("}", " env = CLUSTERCHECK_DEADLINE=99\n}", "line 11 (env): CLUSTERCHECK_DEADLINE: "),
            ("}", " env = MYSQL_HOST=db:x\n}", "line 11 (env): MYSQL_HOST=db:x is not a host name"),
            ("}", " env = DEFAULTS_EXTRA_FILE=/dev/null\n}", "line 11 (env): DEFAULTS_EXTRA_FILE: /dev/null is not"),
        ],
    )
    def test_a_value_that_the_service_refuses_is_named_with_its_line(
        self, host: Host, old: str, new: str, refused: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MYSQL_PORT", "the environment of migrate itself is not that of the service")
        host.serve()
        assert host.migrate() == 0
        host.password.unlink()
        host.write(host.service, SERVICE.replace(old, new))
        assert (host.migrate("--output", host.env_file), host.env_file.exists()) == (2, False)
        assert host.error.startswith(f"{host.service}, {refused}")
        assert not host.password.exists()

    @given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
    def test_every_value_is_read_again_as_it_was_or_refused(self, value: str) -> None:
        with tempfile.TemporaryDirectory() as directory:
            variables, env_file = Path(directory, "variables"), Path(directory, "env")
            quoted = value.replace("'", "'\\''")
            variables.write_text(f"MYSQL_USERNAME='{quoted}'\nMYSQL_PASSWORD=\n")
            words = [str(variables), "--output", str(env_file)]
            if not value.isprintable() or set(value) & set("\\$`") or {"'", '"'} <= set(value):
                with pytest.raises(SettingsError, match="MYSQL_USERNAME cannot be written to an env file"):
                    migrate(words, (), ())
            else:
                assert migrate(words, (), ()) == 0
                seen = {variable.name: variable.value for variable in read_env_file(str(env_file))[0]}
                assert seen["MYSQL_USERNAME"] == value
