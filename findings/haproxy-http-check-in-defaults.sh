#!/bin/bash
# HAProxy: the http-check rules of a defaults section are lost in a proxy with an `option httpchk` of its own.
# Guess: the proxy inherits them, as it inherits timeouts; only the request is its own.
# Seen: by `http-check expect status 503` in defaults, a server that answers 503 is UP. In a proxy that has its own
#   `option httpchk GET /path`, it is DOWN, and haproxy -c warns of nothing.
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
next_port && check=$port; next_port && admin=$port
cat >haproxy.cfg <<END
global
    stats socket ipv4@127.0.0.1:$admin level admin
defaults
    mode tcp
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    option httpchk
    http-check expect status 503
frontend node
    mode http
    bind 127.0.0.1:$check
    http-request return status 503
backend inherits
    server node 127.0.0.1:$check check inter 200ms
backend own
    option httpchk GET /path
    server node 127.0.0.1:$check check inter 200ms
END
state() { # BACKEND: its columns status and check_status
    exec 3<>"/dev/tcp/127.0.0.1/$admin" && echo "show stat $1 4 -1" >&3 && timeout 20 cat <&3 |
        awk -F, '/,node,/ {print $18, $37}'
}

haproxy -v | head -n 1
words=$(haproxy -c -f haproxy.cfg 2>&1)
haproxy -f haproxy.cfg >haproxy.log 2>&1 &
processes+=($!)
wait_for 10 opens "$admin"
sleep 3
inherits=$(state inherits) own=$(state own)
echo "haproxy -c: $words; inherits: $inherits; own: $own"
[[ "$words,$inherits,$own" == 'Configuration file is valid,UP L7OK,DOWN L7STS' ]] || differs
