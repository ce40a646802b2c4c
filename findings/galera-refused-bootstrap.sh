#!/bin/bash
# MariaDB with Galera: a bootstrap that is refused erases the position of the node.
# Guess: the server refuses (safe_to_bootstrap: 0) before it changes anything. grastate.dat keeps the seqno of the
#   ordered stop.
# Seen: seqno is -1, as after a crash. Only the data have the position then: mariadbd --wsrep-recover finds it.
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
node() { # OPTIONS...
    mariadbd --no-defaults --basedir="$folder/usr" --tmpdir="$folder" --user=root --skip-networking \
        --binlog-format=ROW --innodb-autoinc-lock-mode=2 --innodb-flush-log-at-trx-commit=0 \
        --wsrep-on=ON --wsrep-provider="$folder/usr/lib/galera/libgalera_smm.so" --wsrep-node-address=127.0.0.1 \
        --datadir="$folder/data" --socket="$folder/node.sock" --wsrep-cluster-name=finding \
        --wsrep-provider-options="gmcast.listen_addr=tcp://127.0.0.1:$port" \
        --wsrep-cluster-address=gcomm:// "$@" >node.log 2>&1 &
    node=$!
    processes+=("$node")
}
has_ended() { ! kill -0 "$node"; }
seqno() { sed -n 's/^seqno: *//p' data/grastate.dat; }

next_port
node --wsrep-new-cluster
wait_for 60 sql "SELECT 1"
sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'; CREATE DATABASE test; SHUTDOWN"
wait_for 60 has_ended
stopped=$(seqno)
sed -i 's/^safe_to_bootstrap: 1/safe_to_bootstrap: 0/' data/grastate.dat
node --wsrep-new-cluster
wait_for 60 has_ended
wait_for 1 grep 'It may not be safe to bootstrap' node.log
refused=$(seqno)
node --wsrep-recover
wait_for 60 has_ended
recovered=$(sed -n 's/.*Recovered position: .*://p' node.log)
echo "seqno after the stop: $stopped; after the refusal: $refused; recovered: $recovered"
((stopped > 0 && refused == -1 && recovered == stopped)) || differs
