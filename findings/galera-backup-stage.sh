#!/bin/bash
# MariaDB with Galera: a backup stops the commits of its node long before its stage BLOCK_COMMIT.
# Guess: BACKUP STAGE BLOCK_DDL stops DDL only; commits wait from BLOCK_COMMIT on. Only wsrep_desync=ON and a state
#   transfer make a node Donor/Desynced.
# Seen: from BLOCK_DDL to the end, an INSERT waits, and the node is Donor/Desynced, while wsrep_desync is OFF.
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
coproc backup { timeout 60 mariadb --no-defaults --socket="$folder/node.sock" -u root -NB --unbuffered; }
processes+=("$backup_PID")
stage() {
    echo "BACKUP STAGE $1; SELECT 'done';" >&"${backup[1]}"
    read -rt 30 <&"${backup[0]}"
}
seen() { # what the node says, and whether an INSERT ends within 3 s
    local insert=waits
    [[ $(timeout 3 mariadb --no-defaults --socket="$folder/node.sock" -u root -e "
        INSERT INTO test.t VALUES (1); SELECT 'committed'") != *committed* ]] || insert=commits
    echo "$(status wsrep_local_state_comment), $(sql "SHOW VARIABLES LIKE 'wsrep_desync'" | cut -f 2), $insert"
}

sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
sql "CREATE DATABASE test; CREATE TABLE test.t (a INT) ENGINE=InnoDB"
stage START
stage FLUSH
flush=$(seen)
stage BLOCK_DDL
block=$(seen)
stage END
end=$(seen)
echo "FLUSH: $flush; BLOCK_DDL: $block; END: $end"
[[ "$flush; $block; $end" == 'Synced, OFF, commits; Donor/Desynced, OFF, waits; Synced, OFF, commits' ]] || differs
