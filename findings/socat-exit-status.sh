#!/bin/bash
# socat: EXEC drops what a program has printed if the program ends with status 1.
# Guess: it passes on all output, whatever the status, as inetd does.
# Seen: of 100 clients of a program that prints and ends with 1, as health checks do, some get nothing. With 0, all
#   get the answer.
set -eu
packages="socat=1.7.4.4-2"
libraries="libwrap0=7.6.q-32 libnsl2=1.3.0-2 libtirpc3=1.3.3+ds-1 libgssapi-krb5-2=1.20.1-2+deb12u5
    libkrb5-3=1.20.1-2+deb12u5 libk5crypto3=1.20.1-2+deb12u5 libkrb5support0=1.20.1-2+deb12u5
    libkeyutils1=1.6.3-2"
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
losses() { # STATUS: sets lost
    printf '#!/bin/bash\necho answer\nexit %s\n' "$1" >program
    chmod +x program
    next_port
    socat "TCP-LISTEN:$port,bind=127.0.0.1,fork" "EXEC:$folder/program" 2>socat.log &
    processes+=($!)
    wait_for 10 opens "$port"
    lost=0
    for _ in {1..100}; do
        [[ $(exec 3<>"/dev/tcp/127.0.0.1/$port" && timeout 20 cat <&3) == answer ]] || ((++lost))
    done
    echo "Status $1: $lost of 100 answers are lost"
}

socat -V | sed -n 2p
losses 1
((lost > 0)) || differs
losses 0
((lost == 0)) || differs
