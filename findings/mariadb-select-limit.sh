#!/bin/bash
# MariaDB: limits of SELECT cut SHOW STATUS, too.
# Guess: sql_select_limit and max_join_size concern SELECT only, as their names and the manual say.
# Seen: with sql_select_limit=2, SHOW STATUS WHERE ... IN (three names) returns two rows, without a warning. With
#   max_join_size=1 and sql_big_selects=0, it gets error 1104.
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

show="SHOW STATUS WHERE Variable_name IN ('Threads_connected', 'Threads_running', 'Uptime')"

sql "SELECT VERSION()"
rows=$(sql "$show" | wc -l)
limited=$(sql "SET SESSION sql_select_limit=2; $show; SHOW WARNINGS" | wc -l)
joined=$(sql "SET SESSION max_join_size=1, sql_big_selects=0; $show" 2>&1 | grep -o 'ERROR [0-9]*' || echo "no error")
echo "Rows: $rows; with sql_select_limit=2: $limited; with max_join_size=1: $joined"
[[ "$rows,$limited,$joined" == '3,2,ERROR 1104' ]] || differs
