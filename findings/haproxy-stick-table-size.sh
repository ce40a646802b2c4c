#!/bin/bash
# HAProxy: one entry is too much for a table that holds one entry.
# Guess: `stick on int(1)` stores one entry. So `stick-table type integer size 1` keeps all clients on the server
#   that took over, and `nopurge` does too, as published recipes for one writer have it.
# Seen: of 100 clients at once, some return to the first server as soon as it is back. With `nopurge`, all return,
#   also one after the other. With `size 100k`, none returns.
set -eu
packages="haproxy=2.6.12-1+deb12u4"
libraries="liblua5.3-0=5.3.6-2 libopentracing-c-wrapper0=1.1.3-3+b1 libopentracing1=1.6.0-4"
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
opens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }
answer() { # PORT LINE: what is answered
    exec 3<>"/dev/tcp/127.0.0.1/$1" && printf '%s\r\n\r\n' "$2" >&3 && timeout 20 cat <&3
}
node() { answer "$writer" 'GET / HTTP/1.0' | tail -n 1 && echo; }
next_port && node1=$port; next_port && node2=$port; next_port && writer=$port; next_port && admin=$port
clients_of() { # OPTIONS OF THE TABLE: sets each and all to the number of clients that return to node1
    cat >haproxy.cfg <<END
global
    stats socket ipv4@127.0.0.1:$admin level admin
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend node1
    bind 127.0.0.1:$node1
    http-request return status 200 content-type text/plain string node1
frontend node2
    bind 127.0.0.1:$node2
    http-request return status 200 content-type text/plain string node2
listen writer
    mode tcp
    bind 127.0.0.1:$writer
    stick-table type integer $1
    stick on int(1)
    server node1 127.0.0.1:$node1
    server node2 127.0.0.1:$node2 backup
END
    haproxy -f haproxy.cfg >haproxy.log 2>&1 &
    local haproxy=$! client clients=()
    processes+=("$haproxy")
    wait_for 10 opens "$writer"
    [[ $(node) == node1 ]]
    answer "$admin" 'set server writer/node1 state maint' >/dev/null
    [[ $(node) == node2 ]]
    answer "$admin" 'set server writer/node1 state ready' >/dev/null
    each=$(for client in {1..10}; do node; done | grep -c node1 || true)
    for client in {1..100}; do
        node >"client.$client" &
        clients+=($!)
    done
    wait "${clients[@]}"
    all=$(cat client.* | grep -c node1 || true)
    kill "$haproxy"
    wait "$haproxy" || true
    echo "$1: $each of 10 return one after the other, $all of 100 at once"
}

haproxy -v | head -n 1
clients_of "size 1"
((each == 0 && all > 0)) || differs
clients_of "size 1 nopurge"
((each == 10 && all == 100)) || differs
clients_of "size 100k"
((each == 0 && all == 0)) || differs
