"""`clustercheckd migrate` on the forms that packages, roles and modules install: written after their documentation."""

import itertools
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.commands.migrate import migrate
from app.commands.migration.evaluate import evaluate
from app.commands.migration.found import Given
from app.commands.migration.places import Places
from app.switches import DISABLED_FILE

SECRET = "s3cret&word"

# Percona's packages, and their clones: six positional arguments; no variable counts.
POSITIONAL = """#!/bin/bash
# MYSQL_USERNAME=comment
if [[ $1 == '-h' || $1 == '--help' ]];then
    exit
fi
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${3:-0}
ERR_FILE="${4:-/dev/null}"
AVAILABLE_WHEN_READONLY=${5:-1}
DEFAULTS_EXTRA_FILE=${6:-OPTION-FILE}
TIMEOUT=10
EXTRA_ARGS=""
if [[ -n "$MYSQL_USERNAME" ]]; then
    EXTRA_ARGS="$EXTRA_ARGS --user=${MYSQL_USERNAME}"
fi
STATE=$(mysql $EXTRA_ARGS -e "SHOW STATUS LIKE 'wsrep_local_state'" 2>${ERR_FILE})
"""

# Percona XtraDB Cluster 8.4 and later: a dash stands for user and password.
WITH_DASH = """#!/bin/bash
if [[ "$1" == "-" ]]; then
  shift
  MYSQL_USERNAME=""
  MYSQL_PASSWORD=""
  AVAILABLE_WHEN_DONOR=${1:-0}
  ERR_FILE="${2:-/dev/null}"
  AVAILABLE_WHEN_READONLY=${3:-1}
  DEFAULTS_EXTRA_FILE=${4:-OPTION-FILE}
else
  MYSQL_USERNAME="${1-clustercheckuser}"
  MYSQL_PASSWORD="${2-clustercheckpassword!}"
  AVAILABLE_WHEN_DONOR=${3:-0}
  ERR_FILE="${4:-/dev/null}"
  AVAILABLE_WHEN_READONLY=${5:-1}
  DEFAULTS_EXTRA_FILE=${6:-OPTION-FILE}
fi
"""

# Red Hat's packages, and the newest version of the script's author: variables, and a file that is sourced.
VARIABLES = """#!/bin/bash
if [ -e "/var/tmp/clustercheck.disabled" ]; then
    exit 1
fi
if [ -f SYSCONFIG ]; then
    . SYSCONFIG
fi
MYSQL_USERNAME="${MYSQL_USERNAME-clustercheckuser}"
MYSQL_PASSWORD="${MYSQL_PASSWORD-clustercheckpassword!}"
MYSQL_HOST="${MYSQL_HOST:-127.0.0.1}"
MYSQL_PORT="${MYSQL_PORT:-3306}"
ERR_FILE="${ERR_FILE:-/dev/null}"
AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}
AVAILABLE_WHEN_READONLY=${AVAILABLE_WHEN_READONLY:-1}
DEFAULTS_EXTRA_FILE=${DEFAULTS_EXTRA_FILE:-OPTION-FILE}
"""

# The Puppet module galera: its values are written into the script.
WRITTEN_IN = """#!/bin/bash
MYSQL_USERNAME="clustercheck"
MYSQL_PASSWORD="s3cret&word"
MYSQL_HOST="localhost"
AVAILABLE_WHEN_DONOR="0"
ERR_FILE="${4:-/dev/null}"
AVAILABLE_WHEN_READONLY="${AVAILABLE_WHEN_READONLY:--1}"
DEFAULTS_EXTRA_FILE=${6:-OPTION-FILE}
"""

# OpenStack-Ansible: positional, with its own defaults and the address written in.
ROLE = """#!/bin/bash
MYSQL_USERNAME="${1-monitoring}"
MYSQL_PASSWORD="${2-s3cret&word}"
MYSQL_HOST="0.0.0.0"
MYSQL_PORT="3306"
AVAILABLE_WHEN_DONOR=${3:-0}
ERR_FILE="${4:-/dev/null}"
AVAILABLE_WHEN_READONLY=${5:-1}
DEFAULTS_EXTRA_FILE=${6:-OPTION-FILE}
"""

MYSQLCHK = """# default: on
# description: mysqlchk
service mysqlchk
{
# this is a config for xinetd, place it in /etc/xinetd.d/
        disable = no
        flags           = REUSE
        socket_type     = stream
        type            = UNLISTED
        port            = 9200
        wait            = no
        user            = nobody
        server          = SCRIPT
        log_on_failure  += USERID
        only_from       = 0.0.0.0/0
        per_source      = UNLIMITED
}
"""


@dataclass
class Host:
    """A host's files below a directory, and what migrate made of them."""

    directory: Path
    capsys: pytest.CaptureFixture[str]
    error: str = ""

    @property
    def script(self) -> Path:
        """Where the script is."""
        return self.directory / "clustercheck"

    @property
    def password_file(self) -> Path:
        """Where the password goes."""
        return self.directory / "password"

    @property
    def option_file(self) -> Path:
        """The mysql client's option file that is named."""
        return self.directory / "my.cnf"

    @property
    def places(self) -> Places:
        """The usual places, all in the directory."""
        return Places(
            xinetd_conf=self.directory / "xinetd.conf",
            xinetd_directory=self.directory / "xinetd.d",
            unit_directories=(self.directory / "etc-units", self.directory / "lib-units"),
            kolla=self.directory / "config.json",
            configuration_files=(str(self.directory / "sysconfig"),),
            client_files=(str(self.directory / "global.cnf"),),
        )

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        """Write a file, with the places filled in."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for word, value in (
            ("SCRIPT", self.script),
            ("OPTION-FILE", self.option_file),
            ("SYSCONFIG", self.directory / "sysconfig"),
        ):
            text = text.replace(word, str(value))
        path.write_text(text)
        path.chmod(mode)
        return path

    def migrate(self, *arguments: str) -> int:
        """Run the command; the output is in `text`, errors in `error`."""
        code = migrate(["--password-file", str(self.password_file), *arguments], self.places)
        self.text, self.error = self.capsys.readouterr()
        return code

    def settings(self, *arguments: str) -> dict[str, str]:
        """Run the command; give what it set, quotes removed, the password in place of its file."""
        assert self.migrate(*arguments) == 0, self.error
        assert SECRET not in self.text + self.error
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#")]
        settings = {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}
        if "MYSQL_PASSWORD_FILE" in settings:
            assert settings["MYSQL_PASSWORD_FILE"] == str(self.password_file)
            settings["MYSQL_PASSWORD_FILE"] = self.password_file.read_text().rstrip("\n")
        return settings

    def origin_of(self, name: str) -> str:
        """Give the comment above a setting."""
        lines = self.text.splitlines()
        return next(above for above, line in itertools.pairwise(lines) if line.startswith(f"{name}="))


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    """Give a host without anything."""
    return Host(tmp_path, capsys)


def xinetd(**attributes: str) -> str:
    """Give the service, with further attributes."""
    lines = "".join(f"        {name} = {value}\n" for name, value in attributes.items())
    return MYSQLCHK.replace("}\n", f"{lines}}}\n")


class TestForms:
    """What is installed out there."""

    def test_the_xinetd_service_of_perconas_packages_as_it_comes(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("xinetd.d/mysqlchk", MYSQLCHK)
        host.write("xinetd.d/backup.rpmsave", MYSQLCHK)
        host.write("xinetd.d/daytime", "service daytime\n{\n disable = yes\n type = INTERNAL\n}\n")
        assert host.settings() == {
            "MYSQL_USERNAME": "clustercheckuser",
            "MYSQL_PASSWORD_FILE": "clustercheckpassword!",
            "AVAILABLE_WHEN_DONOR": "0",
            "AVAILABLE_WHEN_READONLY": "1",
            "CLUSTERCHECK_PORT": "9200",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert host.origin_of("MYSQL_USERNAME") == f"# {host.script}, line 6"
        assert host.origin_of("CLUSTERCHECK_PORT") == f"# {host.directory}/xinetd.d/mysqlchk, line 10 (port)"
        assert "the password is the default in the published script: change it" in host.text
        assert "(only_from): everybody may connect; this is clustercheckd's default" in host.text
        assert "(per_source): per_source = UNLIMITED: clustercheckd needs no such limit" in host.text

    def test_its_arguments_count_and_its_variables_do_not(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("my.cnf", "[client]\nsocket=/x.sock\n", 0o600)
        arguments = f"check {SECRET} 1 /var/log/cc.log 0 {host.option_file}"
        host.write(
            "xinetd.d/mysqlchk",
            xinetd(server_args=arguments, env="MYSQL_USERNAME=other AVAILABLE_WHEN_DONOR=0", bind="192.0.2.1"),
        )
        assert host.settings() == {
            "DEFAULTS_EXTRA_FILE": str(host.option_file),
            "MYSQL_USERNAME": "check",
            "MYSQL_PASSWORD_FILE": SECRET,
            "AVAILABLE_WHEN_DONOR": "1",
            "AVAILABLE_WHEN_READONLY": "0",
            "CLUSTERCHECK_HOST": "192.0.2.1",
            "CLUSTERCHECK_PORT": "9200",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert "line 17 (server_args): the log file /var/log/cc.log" in host.text
        assert f"setfacl -m u:clustercheck:r {host.option_file}" in host.text

    def test_the_socket_unit_of_percona_xtradb_cluster(self, host: Host) -> None:
        host.write("clustercheck", WITH_DASH)
        host.write("my.cnf", f"[client]\nuser=check\npassword={SECRET}\n", 0o640)
        host.write("lib-units/clustercheck.socket", "[Socket]\nListenStream=9200\nAccept=yes\n")
        host.write(
            "lib-units/clustercheck@.service",
            "# ExecStart=\n[Service]\nUser=mysql\nStandardInput=socket\nExecStart=SCRIPT - 1 /dev/null 1 OPTION-FILE\n",
        )
        # As it is installed, it is not enabled.
        assert host.migrate() == 1
        assert "clustercheck.socket runs clustercheck, but is off: it is not enabled" in host.error
        host.write("etc-units/sockets.target.wants/clustercheck.socket", "")
        expected = {
            "DEFAULTS_EXTRA_FILE": str(host.option_file),
            "AVAILABLE_WHEN_DONOR": "1",
            "AVAILABLE_WHEN_READONLY": "1",
            "CLUSTERCHECK_PORT": "9200",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert host.settings() == expected
        assert not host.password_file.exists()
        # An administrator's drop-in replaces the command.
        host.write(
            "etc-units/clustercheck@.service.d/override.conf",
            f"[Service]\nExecStart=\nEnvironment=WHO=check\nExecStart=-SCRIPT ${{WHO}} '{SECRET}' \\\n 0\n",
        )
        assert host.settings() == {
            **expected,
            "MYSQL_USERNAME": "check",
            "MYSQL_PASSWORD_FILE": SECRET,
            "AVAILABLE_WHEN_DONOR": "0",
        }

    @pytest.mark.parametrize("reached_by", ["xinetd", "the file alone"])
    def test_red_hats_script_with_its_file(self, host: Host, reached_by: str) -> None:
        host.write(
            "sysconfig",
            f'MYSQL_USERNAME="clustercheck"\nMYSQL_PASSWORD="{SECRET}"\nMYSQL_HOST="localhost"\nMYSQL_PORT="3306"\n'
            "ERR_FILE=/dev/null # none\n",
        )
        if reached_by == "xinetd":
            host.write("clustercheck", VARIABLES)
            # As TripleO calls it. Its arguments are ignored, and the file takes precedence over what xinetd sets.
            service = xinetd(env="MYSQL_USERNAME=other AVAILABLE_WHEN_DONOR=1", server_args="root geheim 0")
            host.write("xinetd.d/galera-monitor", service.replace("mysqlchk", "galera-monitor"))
        seen = host.settings()
        expected = {"MYSQL_HOST": "localhost", "MYSQL_USERNAME": "clustercheck", "MYSQL_PASSWORD_FILE": SECRET}
        assert {name: seen[name] for name in expected} == expected
        assert host.origin_of("MYSQL_USERNAME") == f"# {host.directory}/sysconfig, line 1"
        assert "MYSQL_PORT" not in seen
        assert "MySQL's client ignores the port and connects to the socket for localhost" in host.text
        if reached_by == "xinetd":
            assert seen["AVAILABLE_WHEN_DONOR"] == "1"
            assert seen["CLUSTERCHECK_DISABLED_FILE"] == DISABLED_FILE
            assert f"{host.script} ignores its arguments, so they are not in this file" in host.text
            assert "geheim" not in host.text

    def test_the_puppet_module_galera(self, host: Host) -> None:
        host.write("clustercheck", WRITTEN_IN)
        host.write("etc-units/mysqlchk.socket", "[Socket]\nListenStream=[::1]:9201\nAccept=yes\n")
        host.write("etc-units/mysqlchk@.service", "[Service]\nStandardInput=socket\nExecStart=SCRIPT\n")
        # A socket in the file that the mysql client reads by default is what localhost leads to.
        host.write("global.cnf", "[client]\nsocket = /data/mysql.sock\n")
        # Named, it need not be enabled.
        assert host.settings(str(host.directory / "etc-units/mysqlchk.socket")) == {
            "MYSQL_HOST": "localhost",
            "MYSQL_SOCKET": "/data/mysql.sock",
            "MYSQL_USERNAME": "clustercheck",
            "MYSQL_PASSWORD_FILE": SECRET,
            "AVAILABLE_WHEN_DONOR": "0",
            "AVAILABLE_WHEN_READONLY": "1",
            "CLUSTERCHECK_HOST": "::1",
            "CLUSTERCHECK_PORT": "9201",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert "the script treats '-1' as this value" in host.origin_of("AVAILABLE_WHEN_READONLY")
        assert "this does not run today: it is not enabled" not in host.text

    def test_the_ansible_role_of_openstack(self, host: Host) -> None:
        host.write("clustercheck", ROLE)
        host.write(
            "etc-units/mariadbcheck.socket",
            "[Socket]\nListenStream=0.0.0.0:9200\nIPAddressDeny=any\nIPAddressAllow=10.0.3.0/24 localhost\n"
            "Accept=yes\nFreeBind=true\n",
        )
        host.write("etc-units/mariadbcheck@.service", "[Service]\nExecStart=-SCRIPT\nStandardOutput=socket\n")
        host.write("etc-units/sockets.target.wants/mariadbcheck.socket", "")
        assert host.settings() == {
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": "3306",
            "MYSQL_USERNAME": "monitoring",
            "MYSQL_PASSWORD_FILE": SECRET,
            "AVAILABLE_WHEN_DONOR": "0",
            "AVAILABLE_WHEN_READONLY": "1",
            "CLUSTERCHECK_HOST": "*",
            "CLUSTERCHECK_PORT": "9200",
            "CLUSTERCHECK_ALLOW_FROM": "10.0.3.0/24 127.0.0.0/8 ::1/128",
            "CLUSTERCHECK_ANY_PATH": "1",
        }
        assert "does not contain 127.0.0.1" not in host.text

    def test_the_container_of_kolla(self, host: Host) -> None:
        host.write(
            "config.json",
            '{"command": "socat_wrapper -d -lf/var/log/kolla/mariadb/mariadb-clustercheck.log'
            ' tcp-l:4569,fork,reuseaddr,bind=10.0.0.1 EXEC:clustercheck", "config_files": []}\n',
        )
        host.migrate()
        assert "are not in this file: save them to a file with docker inspect" in host.text
        variables = host.write(
            "container.env",
            f"PATH=/usr/bin\nMYSQL_USERNAME=haproxy\nMYSQL_PASSWORD='{SECRET}'\nMYSQL_HOST=10.0.0.1\n"
            "AVAILABLE_WHEN_DONOR=1\n",
        )
        host.password_file.unlink()
        seen = host.settings(str(host.directory / "config.json"), str(variables))
        assert seen == {
            "MYSQL_HOST": "10.0.0.1",
            "MYSQL_USERNAME": "haproxy",
            "MYSQL_PASSWORD_FILE": SECRET,
            "AVAILABLE_WHEN_DONOR": "1",
            "AVAILABLE_WHEN_READONLY": "1",
            "CLUSTERCHECK_HOST": "10.0.0.1",
            "CLUSTERCHECK_PORT": "4569",
            "CLUSTERCHECK_ANY_PATH": "1",
        }

    def test_a_unit_that_runs_socat(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("environment", f"MYSQL_HOST=db1\nPW='{SECRET}'\n")
        unit = host.write(
            "etc-units/check.service",
            f"[Service]\nEnvironmentFile={host.directory}/environment\n"
            "ExecStart=/usr/bin/socat TCP-LISTEN:9200,fork,range=10.0.0.0/8 EXEC:'SCRIPT user'\n",
        )
        for arguments in ((), (str(unit),)):
            seen = host.settings(*arguments)
            assert seen["MYSQL_USERNAME"] == "user"
            assert (seen["CLUSTERCHECK_PORT"], seen["CLUSTERCHECK_ALLOW_FROM"]) == ("9200", "10.0.0.0/8")
            assert "CLUSTERCHECK_ALLOW_FROM does not contain 127.0.0.1: add it" in host.text
            # The script has no such variable, but the mysql client has.
            assert seen["MYSQL_HOST"] == "db1"


class TestXinetd:
    """xinetd.conf(5)."""

    @pytest.mark.parametrize(
        ("only_from", "allowed"),
        [
            ("10.0.0.0", "10.0.0.0/8"),
            ("128.138.12.0 10", "128.138.12.0/24 10.0.0.0/8"),
            ("192.0.2.{7,9}", "192.0.2.7/32 192.0.2.9/32"),
            ("fd00::/8 192.0.2.1", "fd00::/8 192.0.2.1/32"),
            ("localhost", "127.0.0.1/32 ::1/128"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("0.0.0.0", None),  # noqa: S104 (xinetd's wildcard)
            ("10.0.0.0/8 0.0.0.0/0", None),
            # Whoever is left out would take a healthy node for a dead one.
            ("10.0.0.0/8 no-such-host.invalid", None),
            ("", None),
        ],
    )
    def test_only_from(self, host: Host, only_from: str, allowed: str | None) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("xinetd.d/mysqlchk", MYSQLCHK.replace("0.0.0.0/0", only_from))
        assert host.settings().get("CLUSTERCHECK_ALLOW_FROM") == allowed
        if "invalid" in only_from:
            assert "no address was found for no-such-host.invalid, so with this file everybody may connect" in host.text

    def test_the_defaults_section_and_lists_that_add_and_remove(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write(
            "xinetd.conf",
            "defaults\n{\n only_from = 10.0.0.0/8 192.0.2.1\n no_access = 10.9.9.9\n bind = 10.0.0.1\n}\n"
            "includedir /etc/xinetd.d\n",
        )
        host.write(
            "xinetd.d/mysqlchk",
            MYSQLCHK.replace("only_from       =", "only_from -= 192.0.2.1\n only_from +=").replace(
                "0.0.0.0/0", "192.0.2.2"
            ),
        )
        seen = host.settings()
        assert seen["CLUSTERCHECK_ALLOW_FROM"] == "10.0.0.0/8 192.0.2.2/32"
        assert seen["CLUSTERCHECK_HOST"] == "10.0.0.1"
        assert "no_access = 10.9.9.9: CLUSTERCHECK_ALLOW_FROM can only list who may connect" in host.text

    @pytest.mark.parametrize(
        ("name", "old", "new"),
        [
            ("xinetd.d/mysqlchk", "disable = no", "disable = yes"),
            ("xinetd.d/mysqlchk", "= REUSE", "= REUSE DISABLE"),
            ("xinetd.conf", "", "defaults\n{\n disabled = mysqlchk other\n}\n"),
            ("xinetd.conf", "", "defaults\n{\n enabled = other\n}\n"),
        ],
    )
    def test_what_is_off_is_passed_over_unless_it_is_named(self, host: Host, name: str, old: str, new: str) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("xinetd.d/mysqlchk", MYSQLCHK)
        file = host.directory / name
        file.write_text(file.read_text().replace(old, new) if old else new)
        assert (host.migrate(), host.text) == (1, "")
        assert "the xinetd service mysqlchk" in host.error
        assert "but is off: " in host.error
        host.settings(*{str(file), str(host.directory / "xinetd.d/mysqlchk")})
        assert "this does not run today: " in host.text

    def test_a_wrapper_in_front_of_the_script(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        service = MYSQLCHK.replace(
            "= SCRIPT", f"= /usr/sbin/tcpd\n flags = NAMEINARGS\n server_args = SCRIPT me {SECRET}"
        )
        host.write("xinetd.d/mysqlchk", service)
        assert host.settings()["MYSQL_USERNAME"] == "me"

    def test_two_of_them_are_for_the_administrator_to_choose_from(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        first = host.write("xinetd.d/mysqlchk", MYSQLCHK)
        host.write("xinetd.d/second", MYSQLCHK.replace("service mysqlchk", "service second"))
        assert (host.migrate(), host.text) == (2, "")
        assert "the xinetd service mysqlchk" in host.error
        assert "the xinetd service second" in host.error
        assert host.settings(str(first))["CLUSTERCHECK_PORT"] == "9200"


class TestScripts:
    """What a script makes of its arguments and variables."""

    def test_a_script_that_cannot_be_read_is_reported_and_assumed_to_work_as_our_own(self, host: Host) -> None:
        host.write("xinetd.d/mysqlchk", xinetd(server_args="me", env="MYSQL_USERNAME=x AVAILABLE_WHEN_DONOR=1"))
        host.write("sysconfig", f"AVAILABLE_WHEN_DONOR=0\nMYSQL_PASSWORD='{SECRET}'\n")
        seen = host.settings()
        assert (seen["MYSQL_USERNAME"], seen["AVAILABLE_WHEN_DONOR"]) == ("me", "0")
        assert (
            f"{host.script} is not a readable shell script: assumed that its arguments take precedence over"
            in host.text
        )

    def test_the_script_itself_is_enough(self, host: Host) -> None:
        seen = host.settings(str(host.write("clustercheck", WRITTEN_IN)))
        assert (seen["MYSQL_USERNAME"], seen["MYSQL_PASSWORD_FILE"]) == ("clustercheck", SECRET)

    def test_what_only_a_shell_can_evaluate_is_reported(self, host: Host) -> None:
        script = WRITTEN_IN.replace('"clustercheck"', '"$(cat /etc/user)"').replace(
            'HOST="localhost"', "HOST=`hostname`"
        )
        seen = host.settings(str(host.write("clustercheck", script)))
        assert not {"MYSQL_USERNAME", "MYSQL_HOST"} & set(seen)
        assert f"{host.script}, line 2: only a shell can evaluate MYSQL_USERNAME: set it by hand" in host.text

    words = st.text(alphabet="ab1'\"\\$-:={} #;", max_size=16)

    @given(words)
    def test_words_are_what_bash_makes_of_them(self, text: str) -> None:
        line = f"MYSQL_HOST={text}"
        # No program can be run; what is set afterwards is all that counts.
        program = f"a=AA; set -- one '' ; {line}\nprintf '%s|' \"$MYSQL_HOST\""
        done = subprocess.run(
            ["/bin/bash", "--norc", "-c", program], env={"PATH": ""}, capture_output=True, text=True, check=False
        )
        assume(done.returncode == 0 and not done.stderr)
        path = Path(f"/proc/self/fd/{os.memfd_create('script')}")
        path.write_text(f"#!/bin/bash\na=AA\n{line}\n")
        try:
            values = evaluate(path, ["one", ""], "arguments", {}).values
        finally:
            os.close(int(path.name))
        seen = values.get("MYSQL_HOST", Given("unknown", "")).value
        assert seen == "unknown" or f"{seen}|" == done.stdout


class TestOutput:
    """What is printed is valid, and secrets are not."""

    def test_the_password_file_is_for_its_group_and_never_overwritten(self, host: Host) -> None:
        host.write("clustercheck", WRITTEN_IN)
        previous = os.umask(0o077)
        try:
            host.settings(str(host.script))
        finally:
            os.umask(previous)
        assert stat.S_IMODE(host.password_file.stat().st_mode) == 0o640
        # Once more, for a look at the output: it holds that password already.
        host.settings(str(host.script))
        host.password_file.write_text("another\n")
        assert (host.migrate(str(host.script)), host.text) == (2, "")
        assert f"clustercheckd: {host.password_file} already exists: move it away" in host.error
        assert host.password_file.read_text() == "another\n"
        assert SECRET not in host.error

    def test_a_password_file_that_cannot_be_made_is_one_line(self, host: Host) -> None:
        host.write("clustercheck", WRITTEN_IN)
        code = migrate(["--password-file", "/no/directory/password", str(host.script)], host.places)
        text, error = host.capsys.readouterr()
        assert (code, text) == (2, "")
        assert error.startswith("clustercheckd: /no/directory/password: No such file or directory: ")

    def test_an_incomplete_env_file_is_a_failure(self, host: Host) -> None:
        host.write("clustercheck", WRITTEN_IN)
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "app", "migrate", "--password-file", host.password_file, host.script],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 2
        assert "clustercheckd: standard output: No space left on device: the env file is incomplete" in done.stderr

    def test_a_value_that_the_service_refuses_is_named_where_it_stands(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        file = host.write("xinetd.d/mysqlchk", MYSQLCHK.replace("9200", "mysqlchk"))
        assert (host.migrate(), host.text) == (2, "")
        assert host.error.startswith(f"clustercheckd: {file}, line 10 (port): CLUSTERCHECK_PORT: ")
        assert not host.password_file.exists()

    @pytest.mark.parametrize("name", ["o'brien", 'say "hi"', "two words", "tab\there", "a#b", "née"])
    def test_values_are_written_so_that_they_are_read_again(self, host: Host, name: str) -> None:
        variables = host.write("container.env", "MYSQL_USERNAME=" + "".join(f"\\{letter}" for letter in name) + "\n")
        assert host.migrate(str(variables)) == 0, host.error

    def test_a_value_that_no_env_file_can_hold_is_refused(self, host: Host) -> None:
        variables = host.write("container.env", "MYSQL_USERNAME='${HOME}'\n")
        assert (host.migrate(str(variables)), host.text) == (2, "")
        assert "MYSQL_USERNAME cannot be written to an env file: set it by hand" in host.error

    def test_an_option_file_that_clustercheckd_refuses_is_reported(self, host: Host) -> None:
        host.write("clustercheck", POSITIONAL)
        host.write("my.cnf", "[client]\n", 0o666)
        host.write("xinetd.d/mysqlchk", MYSQLCHK)
        host.settings()
        assert "clustercheckd will not start until this is corrected: DEFAULTS_EXTRA_FILE: " in host.text

    def test_nothing_found_exits_with_1_and_says_what_to_type(self, host: Host) -> None:
        assert (host.migrate(), host.text) == (1, "")
        assert "found nothing that runs clustercheck" in host.error
        assert (host.migrate("/no/file"), host.error) == (2, "clustercheckd: /no/file: No such file or directory\n")


class TestPage:
    """docs/migrating-from-clustercheck.md."""

    def test_it_names_every_place_that_is_looked_in(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "migrating-from-clustercheck.md").read_text()
        places = Places()
        looked_in = [places.xinetd_conf, places.xinetd_directory, *places.unit_directories, places.kolla]
        for place in (*looked_in, *places.configuration_files, *places.client_files):
            assert f"`{place}`" in page, place
