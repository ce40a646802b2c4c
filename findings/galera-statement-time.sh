#!/bin/bash
# MariaDB with Galera: max_statement_time does not end a read that waits for the group.
# Guess: a SELECT that waits because of wsrep_sync_wait=1 ends after max_statement_time, as any other.
# Seen: SELECT SLEEP(10) ends after 1 s, with error 1969. A SELECT in sync, while a backup holds a commit, still waits
#   after 5 s. It succeeds when the backup ends.
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
coproc backup { timeout 60 mariadb --no-defaults --socket="$folder/node.sock" -u root -NB --unbuffered; }
processes+=("$backup_PID")
stage() {
    echo "BACKUP STAGE $1; SELECT 'done';" >&"${backup[1]}"
    read -rt 30 <&"${backup[0]}"
}
insert_waits() {
    [[ $(sql "SELECT COUNT(*) FROM information_schema.processlist
        WHERE info LIKE 'INSERT %' AND time_ms > 500") == 1 ]]
}

sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
sql "CREATE DATABASE test; CREATE TABLE test.t (a INT) ENGINE=InnoDB"
stage START
stage FLUSH
stage BLOCK_DDL
sql "INSERT INTO test.t VALUES (1)" >insert.log 2>&1 &
processes+=($!)
wait_for 10 insert_waits
sleeps=$(sql "SET SESSION max_statement_time=1; SELECT SLEEP(10)" 2>&1 | grep -o 'ERROR [0-9]*' || echo "no error")
sql "SET SESSION max_statement_time=1, wsrep_sync_wait=1; SELECT 'works'" >sync.log 2>&1 &
processes+=($!)
sleep 5
waits=$(cat sync.log)
stage END
wait_for 10 test -s sync.log
works=$(cat sync.log)
echo "SELECT SLEEP(10): $sleeps; in sync, after 5 s: ${waits:-waits}; after the backup: $works"
[[ "$sleeps,$waits,$works" == 'ERROR 1969,,works' ]] || differs
