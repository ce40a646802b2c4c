#!/bin/bash
# MariaDB: a server that requires TLS tells clients without it that their password is wrong.
# Guess: with require_secure_transport=ON, they get error 3159, or at least words about TLS.
# Seen: they get error 1045, Access denied ... (using password: YES), with the right password. Over the unix socket,
#   which counts as secure, the same password works.
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

port=$((20000 + RANDOM % 10000))
next_port() { while ((++port)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done; }

sql() { timeout 30 mariadb --no-defaults --socket="$folder/node.sock" -u root -NB -e "$1"; }
mariadb-install-db --no-defaults --force --basedir="$folder/usr" --datadir="$folder/data" --user=root \
    --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
next_port
mariadbd --no-defaults --basedir="$folder/usr" --datadir="$folder/data" --tmpdir="$folder" --user=root \
    --socket="$folder/node.sock" --bind-address=127.0.0.1 --port="$port" --skip-name-resolve >node.log 2>&1 &
processes+=($!)
wait_for 60 sql "SELECT 1"
login() { timeout 30 mariadb --no-defaults -u app -psecret -NB -e "SELECT 'works'" "$@" 2>&1 || true; }

sql "SELECT VERSION()"
sql "CREATE USER app@127.0.0.1 IDENTIFIED BY 'secret'; CREATE USER app@localhost IDENTIFIED BY 'secret'"
before=$(login --host=127.0.0.1 --port="$port")
sql "SET GLOBAL require_secure_transport=ON"
after=$(login --host=127.0.0.1 --port="$port")
socket=$(login --socket="$folder/node.sock")
echo "Before: $before; after: $after; over the socket: $socket"
[[ "$before,$socket,$after" == 'works,works,ERROR 1045 '*'Access denied'*'(using password: YES)' ]] || differs
