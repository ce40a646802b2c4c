#!/bin/bash
# MariaDB with Galera: what a node that has lost its quorum answers, and what not.
# Guess: SELECT 1 fails, because the node serves nobody. COMMIT and ROLLBACK have nothing to do, and succeed. SHOW
#   STATUS with wsrep_sync_wait=8 waits for the group, or gets error 1047, as all else.
# Seen: SELECT 1 succeeds. DO 1, COMMIT and ROLLBACK get error 1047. That SHOW STATUS gets error 1205, lock wait
#   timeout, at once.
set -eu
packages="mariadb-server-core=1:10.11.19-0+deb12u1 mariadb-client-core=1:10.11.19-0+deb12u1
    galera-4=26.4.23-0+deb12u1 galera-arbitrator-4=26.4.23-0+deb12u1"
libraries="libaio1=0.3.113-4 libnuma1=2.0.16-1 liburing2=2.3-3 libedit2=3.1-20221030-2 libncurses6=6.4-4
    libbsd0=0.11.7-2 libboost-program-options1.74.0=1.74.0+ds1-21"
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
size_is() { [[ $(status wsrep_cluster_size) == "$1" ]]; }
is_primary() { [[ $(status wsrep_cluster_status) == Primary ]]; }
has_lost_quorum() { ! is_primary; }

sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
next_port
garbd --address "gcomm://127.0.0.1:$group" --group finding --name arbitrator --workdir "$folder" \
    --options "gmcast.listen_addr=tcp://127.0.0.1:$port" --log "$folder/arbitrator.log" &
arbitrator=$!
processes+=("$arbitrator")
wait_for 30 size_is 2
kill -KILL "$arbitrator"
wait "$arbitrator" 2>/dev/null || true
wait_for 60 has_lost_quorum
seen='' began=$SECONDS
for statement in "SHOW STATUS" "SELECT 1" "DO 1" "COMMIT" "ROLLBACK" "SET wsrep_sync_wait=8; SHOW STATUS"; do
    seen+="$statement: $(outcome "$statement"), "
done
seconds=$((SECONDS - began))
echo "${seen}within $seconds s"
[[ $seen == 'SHOW STATUS: no error, SELECT 1: no error, DO 1: ERROR 1047, COMMIT: ERROR 1047, '`
    `'ROLLBACK: ERROR 1047, SET wsrep_sync_wait=8; SHOW STATUS: ERROR 1205, ' ]] || differs
((seconds < 20)) || differs
