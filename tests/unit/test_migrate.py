"""`clustercheckd migrate`: xinetd's service and the script's variables become an env file."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.exit_status import DONE, FAILED, TO_CHECK
from app.script.migrate import migrate
from app.settings.env_file import read_env_file
from app.settings.files import SettingsError

SECRET = "s3cret&word"
XINETD, SCRIPT_FILE, SYSCONFIG = (
    Path("xinetd.d"),
    Path("clustercheck"),
    Path("sysconfig"),
)
ENV_FILE, PASSWORD_FILE = Path("clustercheckd.env"), Path("password")
# After Percona's packages, and Red Hat's.
SERVICE = """# description: mysqlchk
service mysqlchk
{
        disable         = no
        type            = UNLISTED
        port            = 9200
        server          = clustercheck
        log_on_failure  += USERID
        only_from       = 0.0.0.0/0
}
"""
SCRIPT = """#!/bin/bash
# MYSQL_USERNAME=comment
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${3:-0}
ERR_FILE="${4:-/dev/null}"
AVAILABLE_WHEN_READONLY=${5:-1}
EXTRA_ARGS="--user=$MYSQL_USERNAME --password=${MYSQL_PASSWORD}"
if [ -e /var/tmp/clustercheck.disabled ]; then exit 1; fi
[ "$AVAILABLE_WHEN_DONOR" = 1 ] && [ "${AVAILABLE_WHEN_READONLY:-1}" == 1 ]
if [ -f /etc/sysconfig/clustercheck ]; then . /etc/sysconfig/clustercheck; fi
"""
# The lines of those that are downloaded today. They ignore their arguments.
SCRIPT_OF_TODAY = """#!/bin/bash
if [[ $1 == '-h' || $1 == '--help' ]]; then echo "Usage: $0 <user> <pass>"; exit; fi
if [ -f /etc/sysconfig/clustercheck ]; then
        . /etc/sysconfig/clustercheck
fi
MYSQL_USERNAME="${MYSQL_USERNAME:=-clustercheckuser}"
MYSQL_PASSWORD="${MYSQL_PASSWORD-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}
AVAILABLE_WHEN_READONLY=${AVAILABLE_WHEN_READONLY:-1}
if [[ -n "$MYSQL_USERNAME" ]]; then EXTRA_ARGS="$EXTRA_ARGS --user=${MYSQL_USERNAME}"; fi
mysql $EXTRA_ARGS 2>${ERR_FILE} | awk '{if (NR!=1){print $2}}'
"""


@pytest.fixture(autouse=True)
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in a directory that has the files of a host."""
    monkeypatch.chdir(tmp_path)
    XINETD.mkdir()
    SCRIPT_FILE.write_text(SCRIPT)


def serve(*more: str, name: str = "mysqlchk") -> None:
    """Write the xinetd service, with further lines."""
    (XINETD / name).write_text(SERVICE.replace("}", "\n".join([*more, "}"])))


def run(output: object = "", path: str = "") -> int:
    """Run the command; return the exit status."""
    return migrate(path, str(output), str(PASSWORD_FILE), str(XINETD), [str(SYSCONFIG)])


def settings(path: str = "") -> dict[str, str]:
    """Run the command anew; return the settings, with the password in place of its file."""
    for file in (ENV_FILE, PASSWORD_FILE):
        file.unlink(missing_ok=True)
    code = run(ENV_FILE, path)
    # What is not certain is told in the file too, and by the exit status.
    assert code == (TO_CHECK if "\n# CHECK" in ENV_FILE.read_text() else DONE)
    variables, _ = read_env_file(str(ENV_FILE))
    values = {variable.name: variable.value for variable in variables}
    if values.get("DEFAULTS_EXTRA_FILE") == "/etc/my.cnf":
        # The script's own default, where it can be read.
        del values["DEFAULTS_EXTRA_FILE"]
    if PASSWORD_FILE.exists():
        assert values["MYSQL_PASSWORD_FILE"] == str(PASSWORD_FILE.absolute())
        values["MYSQL_PASSWORD_FILE"] = PASSWORD_FILE.read_text().removesuffix("\n")
    return values


def to_check(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the command anew; return the lines to check."""
    settings()
    error = capsys.readouterr().err
    assert SECRET not in error
    return re.findall("clustercheckd: check: (.*)", error)


def files() -> dict[Path, bytes]:
    """Return all files."""
    return {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}


def named(text: str) -> dict[str, str]:
    """Return the settings that a line of NAME=value words names."""
    return dict(word.split("=", 1) for word in text.split())


class TestXinetd:
    """xinetd.conf(5)."""

    def test_the_service_as_packages_install_it(self) -> None:
        for name in ("mysqlchk", "mysqlchk.rpmsave", "mysqlchk~"):
            serve(name=name)
        with (XINETD / "mysqlchk").open("a") as file:
            file.write("service daytime\n{\n type = INTERNAL\n port = 13\n}\n")
        (XINETD / "directory").mkdir()
        assert settings() == named(
            "MYSQL_USERNAME=clustercheckuser MYSQL_PASSWORD_FILE=clustercheckpassword!"
            " AVAILABLE_WHEN_DONOR=0 AVAILABLE_WHEN_READONLY=1 CLUSTERCHECK_PORT=9200"
            " CLUSTERCHECK_ALLOW_FROM=0.0.0.0/0 CLUSTERCHECK_ANY_PATH=1"
        )
        assert (
            '# xinetd.d/mysqlchk (port)\nCLUSTERCHECK_PORT="9200"\n'
            in ENV_FILE.read_text()
        )

    def test_arguments_take_precedence_over_files_and_files_over_env(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        serve(
            "bind = 192.0.2.1",
            f"server_args = check {SECRET} 1 /var/log/cc.log 0 my.cnf",
            "env = MYSQL_USERNAME=check MYSQL_PORT=1 MYSQL_PORT=3307",
            "env += PATH=/bin CLUSTERCHECK_DEADLINE=3",
        )
        Path("my.cnf").touch()
        SYSCONFIG.write_text(
            "MYSQL_HOST='db1'\nMYSQL_PORT=3307\nAVAILABLE_WHEN_DONOR=0\n"
        )
        assert settings() == named(
            f"MYSQL_USERNAME=check MYSQL_PASSWORD_FILE={SECRET} MYSQL_HOST=db1 MYSQL_PORT=3307"
            " AVAILABLE_WHEN_DONOR=1 AVAILABLE_WHEN_READONLY=0 CLUSTERCHECK_DEADLINE=3"
            " CLUSTERCHECK_HOST=192.0.2.1 CLUSTERCHECK_PORT=9200 DEFAULTS_EXTRA_FILE=my.cnf"
            " CLUSTERCHECK_ALLOW_FROM=0.0.0.0/0 CLUSTERCHECK_ANY_PATH=1"
        )
        # The script may source its files last.
        assert (
            "sysconfig, line 3: AVAILABLE_WHEN_DONOR has another"
            in capsys.readouterr().err
        )

    @pytest.mark.parametrize(
        ("only_from", "allowed"),
        [
            ("= 10.0.0.0/8 192.0.2.1 fd00::/8", "10.0.0.0/8 192.0.2.1 fd00::/8"),
            ("+= 10.0.0.2", "0.0.0.0/0 10.0.0.2"),
            ("-= 10.0.0.2", None),
            # An incomplete list would refuse a load balancer.
            ("= 10.0.0.1 10.1.0.0", None),
            ("= 10.0.0.1 lb1.example", None),
            ("=", None),
        ],
    )
    def test_who_may_connect(
        self, only_from: str, allowed: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        serve(f"only_from {only_from}")
        assert settings().get("CLUSTERCHECK_ALLOW_FROM") == allowed
        told = (
            "CLUSTERCHECK_ALLOW_FROM: everybody may connect" in capsys.readouterr().err
        )
        assert told == (allowed is None)

    def test_one_of_two_must_be_named_and_a_disabled_one_is_not_used(self) -> None:
        serve("disable = yes")
        assert run() == FAILED
        with pytest.raises(SettingsError, match="0 enabled services"):
            run(path="xinetd.d/mysqlchk")
        serve()
        serve("port = 9201", name="other")
        with pytest.raises(SettingsError, match="2 enabled services"):
            run(ENV_FILE)
        assert settings("xinetd.d/other")["CLUSTERCHECK_PORT"] == "9201"

    @pytest.mark.parametrize("arguments", ["me pw 2", "me pw 1 /x yes"])
    def test_a_flag_that_the_script_reads_otherwise_is_refused(
        self, arguments: str
    ) -> None:
        serve(f"server_args = {arguments}")
        with pytest.raises(SettingsError, match="must be 0 or 1"):
            run(ENV_FILE)
        assert not PASSWORD_FILE.exists()


class TestScript:
    """Its lines that may set a variable to another value are for people to read."""

    @pytest.mark.parametrize(
        ("text", "arguments", "names"),
        [
            (SCRIPT, f"me {SECRET} 1", ""),
            (SCRIPT_OF_TODAY, "", ""),
            # What somebody changed has no effect.
            (SCRIPT.replace("3:-0", "3:-1"), "me pw 1", ""),
            (SCRIPT.replace("3:-0", "3:-1"), "me", "AVAILABLE_WHEN_DONOR"),
            # Another argument than the usual one.
            (SCRIPT.replace("${3", "${4"), "me pw 1 0", "AVAILABLE_WHEN_DONOR"),
            (
                SCRIPT_OF_TODAY,
                f"me {SECRET} 1",
                "MYSQL_USERNAME MYSQL_PASSWORD AVAILABLE_WHEN_DONOR",
            ),
        ],
    )
    def test_a_line_is_named_where_it_yields_another_value(
        self, text: str, arguments: str, names: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        SCRIPT_FILE.write_text(text)
        serve(f"server_args = {arguments}")
        assert [line.split()[-1] for line in to_check(capsys)] == names.split()

    def test_a_variable_that_the_script_takes_from_elsewhere_is_named(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        SYSCONFIG.write_text("AVAILABLE_WHEN_DONOR=1\n")
        serve()
        assert to_check(capsys) == ["clustercheck, line 5: AVAILABLE_WHEN_DONOR"]
        SCRIPT_FILE.write_text(SCRIPT_OF_TODAY)
        assert to_check(capsys) == []

    def test_every_form_that_may_set_one_is_named_and_no_line_is_shown(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        forms = rf"""
            MYSQL_HOST=db1
            export MYSQL_HOST=db1
            MYSQL_HOST+=db1
            : "${{AVAILABLE_WHEN_READONLY:=0}}"
            : ${{AVAILABLE_WHEN_READONLY=0}}
            (( AVAILABLE_WHEN_DONOR = 1 ))
            read -r MYSQL_USERNAME MYSQL_HOST < /etc/account
            [ -f /etc/other ] && . /etc/other
            if true; then source "$other"; fi
            if [ -e "/run/node.disabled" ]; then
            MYSQL_PASSWORD='{SECRET}'
            curl http://me:{SECRET}@host/disabled
            shift 2
            set -- a b 1
            set - a b 1
            printf -v "AVAILABLE_$what" 1
            eval "$DEFAULTS"
        """.strip().splitlines()
        SCRIPT_FILE.write_text(
            SCRIPT + "".join(f"# {form}\n{form}\n" for form in forms)
        )
        serve()
        told = to_check(capsys)
        numbers = [line.split()[2] for line in told]
        before = SCRIPT.count("\n")
        assert numbers == [
            f"{before + 2 * number}:" for number in range(1, len(forms) + 1)
        ]
        in_file = re.findall(
            "# CHECK, then remove this line: (.*)", ENV_FILE.read_text()
        )
        assert in_file == told

    def test_a_default_that_somebody_changed_is_no_certain_value(self) -> None:
        SCRIPT_FILE.write_text(SCRIPT.replace("3:-0", "3:-1"))
        serve("server_args = me pw")
        assert run(ENV_FILE) == TO_CHECK
        text = ENV_FILE.read_text()
        assert (
            "# CHECK, then remove this line: clustercheck, line 5: AVAILABLE_WHEN_DONOR"
            in text
        )
        assert '# NOT CERTAIN: see CHECK above\nAVAILABLE_WHEN_DONOR="0"\n' in text
        assert text.count("NOT CERTAIN") == 1

    @pytest.mark.parametrize(
        "text",
        [
            "exec /usr/bin/clustercheck.real check secret 1\n",
            'DONOR=${3:-1}; mysql -uroot -psecret -e "SHOW STATUS"\n',
        ],
        ids=["another script", "its own names"],
    )
    def test_without_the_scripts_own_lines_nothing_is_certain(
        self, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        SCRIPT_FILE.write_text(text)
        serve()
        assert [line.split(": ")[-1] for line in to_check(capsys)] == [
            *("MYSQL_USERNAME", "MYSQL_PASSWORD"),
            *("AVAILABLE_WHEN_DONOR", "AVAILABLE_WHEN_READONLY"),
        ]
        assert ENV_FILE.read_text().count("NOT CERTAIN") == 4

    @pytest.mark.parametrize(
        ("words", "is_certain"),
        [
            (f"server = {SCRIPT_FILE.name}", True),
            (f"server = /usr/sbin/tcpd\nserver_args = {SCRIPT_FILE.name} me pw", True),
            (
                f"server = /usr/bin/env\nserver_args = AVAILABLE_WHEN_DONOR=1 {SCRIPT_FILE.name}",
                False,
            ),
            (
                f"server = {SCRIPT_FILE.name}\nflags = REUSE NAMEINARGS\nserver_args = x me",
                False,
            ),
            (f"server = galera-check\nserver_args = 1 {SCRIPT_FILE.name} me", False),
        ],
    )
    def test_another_way_to_start_the_script_makes_no_value_certain(
        self, words: str, *, is_certain: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        serve(words)
        told = to_check(capsys)
        assert [" with other arguments: MYSQL_USERNAME, " in line for line in told] == (
            [] if is_certain else [True]
        )

    def test_a_value_that_the_service_would_refuse_is_an_error(self) -> None:
        serve()
        SYSCONFIG.write_text("CLUSTERCHECK_DEADLINE=0.01\n")
        with pytest.raises(
            SettingsError, match=r"line 1: CLUSTERCHECK_DEADLINE: 0\.01: "
        ):
            run(ENV_FILE)

    def test_one_that_cannot_be_read_is_an_error(self) -> None:
        serve()
        SCRIPT_FILE.unlink()
        with pytest.raises(SettingsError, match="clustercheck: No such file"):
            run(ENV_FILE)
        assert files() == {}


class TestOutput:
    """Each file is written whole or not at all, and nothing that was there is lost."""

    def test_nothing_found_exits_with_1_and_a_wrong_path_is_an_error(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        before = files()
        assert run(ENV_FILE) == FAILED
        assert "found nothing" in capsys.readouterr().err
        with pytest.raises(SettingsError, match="/no/file: No such file"):
            run(ENV_FILE, "/no/file")
        assert files() == before

    def test_both_files_are_for_the_services_group(self) -> None:
        serve()
        # As the package installs it.
        ENV_FILE.write_text("# The settings of clustercheckd.\n")
        assert run(ENV_FILE) == DONE
        assert {path.stat().st_mode & 0o777 for path in (ENV_FILE, PASSWORD_FILE)} == {
            0o640
        }

    def test_neither_settings_nor_a_password_are_overwritten(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        serve()
        ENV_FILE.write_text("MYSQL_HOST=db1\n")
        before = files()
        for output in (ENV_FILE, "/dev/null"):
            with pytest.raises(
                SettingsError, match=f"{output} is more than a file of comments"
            ):
                run(output)
        assert files() == before
        ENV_FILE.unlink()
        PASSWORD_FILE.write_text("another\n")
        assert run(ENV_FILE) == TO_CHECK
        assert PASSWORD_FILE.read_text() == "another\n"
        assert "check: password exists and stays as it is" in capsys.readouterr().err

    def test_without_an_output_it_prints_the_env_file_and_writes_no_file(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        serve(f"server_args = me {SECRET}")
        before = files()
        assert run() == DONE
        text = capsys.readouterr().out
        assert f'MYSQL_PASSWORD_FILE="{PASSWORD_FILE.absolute()}"' in text
        assert SECRET not in text
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr("sys.stdout", full)
            with pytest.raises(SettingsError, match="incomplete"):
                run()
        assert files() == before

    @given(
        st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1)
    )
    def test_every_value_is_read_again_as_it_was_or_refused(self, value: str) -> None:
        SYSCONFIG.write_text(f"MYSQL_USERNAME={shlex.quote(value)}\n")
        if not value.isprintable() or set(value) & set('\\$`"'):
            with pytest.raises(SettingsError, match="MYSQL_USERNAME cannot be written"):
                settings()
        else:
            assert settings()["MYSQL_USERNAME"] == value
