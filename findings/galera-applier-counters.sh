#!/bin/bash
# MariaDB with Galera: a node counts the statements that were sent to other nodes.
# Guess: the Com_ counters count what clients send to this server: Com_insert and Com_alter_table stand still where
#   rows are only applied. Innodb_rows_inserted grows there.
# Seen: on a node to which nobody sends anything, INSERT ... SELECT of 1,000 rows adds 1 to Com_insert (not to
#   Com_insert_select) and 1,000 to Handler_write; ALTER TABLE adds 1 to Com_alter_table. No Innodb_rows_ exists.
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
sql_on() { timeout 30 mariadb --no-defaults --socket="$folder/$1.sock" -u root -NB -e "$2"; }
# The second node starts with a copy of the data: a state transfer passes on their position only.
mkdir -p usr/bin
cat >usr/bin/wsrep_sst_finding <<END
#!/bin/bash
while ((\$# > 1)); do
    case \$1 in --role) role=\$2 ;; --gtid) gtid=\$2 ;; esac
    shift
done
if [[ \$role == donor ]]; then
    echo "\$gtid" >$folder/gtid.new && mv $folder/gtid.new $folder/gtid && echo "done \$gtid"
else
    echo ready 127.0.0.1:1/finding
    while [[ -d $folder && ! -e $folder/gtid ]]; do sleep 0.1; done
    cat $folder/gtid
fi
END
chmod +x usr/bin/wsrep_sst_finding
node() { # NAME ADDRESS OPTIONS...
    next_port && group=$port && next_port
    mariadbd --no-defaults --basedir="$folder/usr" --tmpdir="$folder" --user=root --skip-networking \
        --binlog-format=ROW --innodb-autoinc-lock-mode=2 --innodb-flush-log-at-trx-commit=0 \
        --wsrep-on=ON --wsrep-provider="$folder/usr/lib/galera/libgalera_smm.so" --wsrep-node-address=127.0.0.1 \
        --datadir="$folder/$1" --socket="$folder/$1.sock" --wsrep-cluster-name=finding --wsrep-sst-method=finding \
        --wsrep-provider-options="gmcast.listen_addr=tcp://127.0.0.1:$group;ist.recv_addr=127.0.0.1:$port" \
        --wsrep-cluster-address="gcomm://$2" "${@:3}" >"$1.log" 2>&1 &
    node=$!
    processes+=("$node")
    wait_for 60 sql_on "$1" "SELECT 1"
}
has_ended() { ! kill -0 "$node"; }
is_synced() { [[ $(sql_on second "SHOW STATUS LIKE 'wsrep_local_state_comment'") == *Synced ]]; }
counters() { # of the second node, when it has applied all that was sent to the first
    sql_on second "SET SESSION wsrep_sync_wait=1; SELECT 1" >/dev/null
    sql_on second "SHOW GLOBAL STATUS WHERE Variable_name REGEXP
        '^(Com_alter_table|Com_insert|Com_insert_select|Handler_write|Innodb_rows_.*)$'" | sort
}
growth() { # STATEMENT: what grows on the second node when it is sent to the first
    counters >before
    sql_on first "USE test; $1"
    counters >after
    join before after | awk '$3 > $2 {print $1, $3 - $2}' | paste -sd ,
}

mariadb-install-db --no-defaults --force --basedir="$folder/usr" --datadir="$folder/first" --user=root \
    --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
node first "" --wsrep-new-cluster
sql_on first "SELECT VERSION(); SHOW STATUS LIKE 'wsrep_provider_version'"
sql_on first "CREATE DATABASE test; CREATE TABLE test.t (a INT PRIMARY KEY) ENGINE=InnoDB; SHUTDOWN"
wait_for 60 has_ended
cp -a first second
node first "" --wsrep-new-cluster
node second "127.0.0.1:$group"
wait_for 60 is_synced
insert=$(growth "INSERT INTO t SELECT seq FROM seq_1_to_1000")
alter=$(growth "ALTER TABLE t ADD COLUMN b INT")
innodb=$(counters | grep -c Innodb_rows || true)
echo "INSERT: $insert; ALTER: $alter; Innodb_rows_ counters: $innodb"
[[ "$insert;$alter;$innodb" == 'Com_insert 1,Handler_write 1000;Com_alter_table 1;0' ]] || differs
