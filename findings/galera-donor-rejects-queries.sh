#!/bin/bash
# MariaDB with Galera: wsrep_sst_donor_rejects_queries rejects nothing.
# Guess: while such a node is a donor, clients get error 1047, and wsrep_ready is OFF, as the manual says.
# Seen: its log says "Rejecting client queries for the duration of SST". wsrep_ready is ON, and it reads and writes.
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
# A state transfer that lasts until a file is there.
mkdir -p usr/bin
cat >usr/bin/wsrep_sst_finding <<END
#!/bin/bash
while [[ -d $folder && ! -e $folder/go ]]; do sleep 0.1; done
echo done
END
chmod +x usr/bin/wsrep_sst_finding
mariadb-install-db --no-defaults --force --basedir="$folder/usr" --datadir="$folder/data" --user=root \
    --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
next_port && group=$port
mariadbd --no-defaults --basedir="$folder/usr" --tmpdir="$folder" --user=root --skip-networking \
    --binlog-format=ROW --innodb-autoinc-lock-mode=2 --innodb-flush-log-at-trx-commit=0 \
    --wsrep-on=ON --wsrep-provider="$folder/usr/lib/galera/libgalera_smm.so" --wsrep-node-address=127.0.0.1 \
    --datadir="$folder/data" --socket="$folder/node.sock" --wsrep-cluster-name=finding \
    --wsrep-provider-options="gmcast.listen_addr=tcp://127.0.0.1:$group" \
    --wsrep-cluster-address=gcomm:// --wsrep-new-cluster --wsrep-sst-donor-rejects-queries=ON >node.log 2>&1 &
processes+=($!)
wait_for 60 sql "SELECT 1"
status() { sql "SHOW STATUS LIKE '$1'" | cut -f 2; }
says() { [[ $(status wsrep_local_state_comment) == "$1" ]]; }

sql "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
sql "CREATE DATABASE test; CREATE TABLE test.t (a INT) ENGINE=InnoDB"
next_port
garbd --address "gcomm://127.0.0.1:$group" --group finding --name joiner --workdir "$folder" \
    --sst finding:127.0.0.1:1 --options "gmcast.listen_addr=tcp://127.0.0.1:$port" --log "$folder/joiner.log" &
processes+=($!)
wait_for 30 says Donor/Desynced
wait_for 30 grep 'Rejecting client queries for the duration of SST' node.log
ready=$(status wsrep_ready)
rows=$(sql "INSERT INTO test.t VALUES (1); SELECT COUNT(*) FROM test.t")
says Donor/Desynced && state=donor || state=other
: >go
wait_for 30 says Synced
echo "State: $state; wsrep_ready: $ready; rows written and read: $rows"
[[ "$state,$ready,$rows" == 'donor,ON,1' ]] || differs
