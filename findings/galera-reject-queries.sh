#!/bin/bash
# MariaDB with Galera: no status variable shows that a node rejects queries.
# Guess: with wsrep_reject_queries=ALL, wsrep_ready is OFF, for clients get error 1047, "WSREP has not yet prepared
#   node for application use".
# Seen: wsrep_ready is ON, the node is Synced and Primary, and SELECT 1 works. Each query of a table gets error 1047.
set -eu
packages="mariadb-server-core=1:10.11.19-0+deb12u1 mariadb-client-core=1:10.11.19-0+deb12u1
    galera-4=26.4.23-0+deb12u1"
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
next_port && group=$port
mariadbd --no-defaults --basedir="$folder/usr" --tmpdir="$folder" --user=root --skip-networking \
    --binlog-format=ROW --innodb-autoinc-lock-mode=2 --innodb-flush-log-at-trx-commit=0 \
    --wsrep-on=ON --wsrep-provider="$folder/usr/lib/galera/libgalera_smm.so" --wsrep-node-address=127.0.0.1 \
    --datadir="$folder/data" --socket="$folder/node.sock" --wsrep-cluster-name=finding \
    --wsrep-provider-options="gmcast.listen_addr=tcp://127.0.0.1:$group" \
    --wsrep-cluster-address=gcomm:// --wsrep-new-cluster >node.log 2>&1 &
processes+=($!)
wait_for 60 sql "SELECT 1"
status() { sql "SHOW STATUS LIKE '$1'" | cut -f 2; }
outcome() { sql "$1" 2>&1 | grep -o 'ERROR [0-9]*' || echo "no error"; }

sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
sql "SET GLOBAL wsrep_reject_queries='ALL'"
says=$(status wsrep_local_state_comment),$(status wsrep_cluster_status),$(status wsrep_ready)
one=$(outcome "SELECT 1") table=$(outcome "SELECT COUNT(*) FROM mysql.global_priv")
echo "It says: $says; SELECT 1: $one; a table: $table"
[[ "$says,$one,$table" == 'Synced,Primary,ON,no error,ERROR 1047' ]] || differs
