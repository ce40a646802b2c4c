#!/bin/bash
# MariaDB: where init_connect fails, clients can log in, but not work.
# Guess: if the SQL of init_connect has an error, the login fails.
# Seen: the login succeeds. The first statement, whatever it is, gets error 1184, and the session ends. An account
#   with SUPER notices nothing.
set -eu
packages="mariadb-server-core=1:10.11.19-0+deb12u1 mariadb-client-core=1:10.11.19-0+deb12u1"
libraries="libaio1=0.3.113-4 libnuma1=2.0.16-1 liburing2=2.3-3 libedit2=3.1-20221030-2 libncurses6=6.4-4
    libbsd0=0.11.7-2"
sed -n '/^set/q; s/^# //p' "$0"

folder=$(mktemp -d) processes=()
clean_up() {
    for process in "${processes[@]}"; do
        kill -KILL "$process" || true
        wait "$process" || true
    done 2>/dev/null
    rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"
# shellcheck disable=SC2086 # lists of words
apt-get -qq -o APT::Sandbox::User=root download $packages $libraries 2>apt.log ||
    { echo "Not available: $(tail -n 1 apt.log)" && exit 3; }
for package in *.deb; do dpkg-deb -x "$package" .; done
machine=$(uname -m)-linux-gnu
export PATH=$folder/usr/sbin:$folder/usr/bin:$PATH LD_LIBRARY_PATH=$folder/usr/lib/$machine:$folder/lib/$machine
differs() { echo "This differs from what was seen before."; exit 1; }

wait_for() { # SECONDS COMMAND...
    local until=$((SECONDS + $1)) && shift
    while ! "$@" >waiting.log 2>&1; do
        ((SECONDS < until)) || { echo "No longer waiting for: $*" && cat waiting.log && exit 2; }
        sleep 0.1
    done
}

sql() { timeout 30 mariadb --no-defaults --socket="$folder/node.sock" -u root -NB -e "$1"; }
mariadb-install-db --no-defaults --force --basedir="$folder/usr" --datadir="$folder/data" --user=root \
    --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
mariadbd --no-defaults --basedir="$folder/usr" --datadir="$folder/data" --tmpdir="$folder" --user=root \
    --socket="$folder/node.sock" --skip-networking >node.log 2>&1 &
processes+=($!)
wait_for 60 sql "SELECT 1"

as_app() { timeout 30 mariadb --no-defaults --socket="$folder/node.sock" -u app -psecret -NB -e "$1" 2>&1; }

sql "SELECT VERSION()"
sql "CREATE USER app@localhost IDENTIFIED BY 'secret'; SET GLOBAL init_connect='this is no SQL'"
as_app "" && login=works || login=fails
statement=$(as_app "SELECT 1" | grep -o 'ERROR [0-9]*' || echo works)
super=$(sql "SELECT 'works'")
echo "Login: $login; login and SELECT 1: $statement; with SUPER: $super"
[[ "$login,$statement,$super" == 'works,ERROR 1184,works' ]] || differs
