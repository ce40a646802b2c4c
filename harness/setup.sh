#!/bin/sh
# Installs what the demo and the tests need: the servers from the distribution, and a virtual environment with the
# locked dependencies. Prints what it installs first.
#   usage: harness/setup.sh VENV-DIRECTORY
set -eu

venv=$1
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'setup: %s\n' "$*"; }

find_python() {
    # A command may exist but not work (a version manager's stub), or be too old, so run it.
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

has_galera() {
    for provider in /usr/lib/galera /usr/lib64/galera-4 /usr/lib64/galera; do
        [ -e "$provider/libgalera_smm.so" ] && return
    done
    return 1
}

packages=""
command -v mariadbd >/dev/null || packages="$packages mariadb-server"
has_galera || packages="$packages galera-4"
command -v rsync >/dev/null || packages="$packages rsync"
command -v haproxy >/dev/null || packages="$packages haproxy"
# The tests run clustercheck under xinetd and socat, and make certificates with openssl.
command -v xinetd >/dev/null || packages="$packages xinetd"
command -v socat >/dev/null || packages="$packages socat"
command -v openssl >/dev/null || packages="$packages openssl"
command -v ip >/dev/null || packages="$packages iproute2"
# With gdb, the tests hold a lock inside a server.
command -v gdb >/dev/null || packages="$packages gdb"
# promtool checks the alerts, and Prometheus scrapes the services of the tests.
command -v prometheus >/dev/null || packages="$packages prometheus"
# The tests and make truth cut hosts off, and make truth slows disks down.
command -v nft >/dev/null || packages="$packages nftables"
command -v strace >/dev/null || packages="$packages strace"
command -v systemd-analyze >/dev/null || packages="$packages systemd"
python=$(find_python)
if [ -z "$python" ]; then
    packages="$packages python3 python3-venv"
elif ! "$python" -c 'import ensurepip' 2>/dev/null; then
    packages="$packages python3-venv"
fi

if [ -n "$packages" ]; then
    if ! command -v apt-get >/dev/null; then
        say "cannot install packages without apt-get: install these with your package manager:$packages" >&2
        exit 1
    fi
    say "installing from the distribution:$packages"
    sudo=""
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        say "using sudo for this step only"
    fi
    $sudo apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-confold $packages >/dev/null
    # The packages start services. Stop them: they did not run before.
    if [ -d /run/systemd/system ]; then
        for service in mariadb haproxy xinetd prometheus; do
            case "$packages " in *" $service "* | *" $service-server "*)
                say "stopping the service $service, which its package started (to start it: systemctl enable --now $service)"
                $sudo systemctl disable --quiet --now "$service" ;;
            esac
        done
    fi
    python=$(find_python)
    if [ -z "$python" ]; then
        say "this distribution has no Python 3.11 or newer: install one first" >&2
        exit 1
    fi
fi

say "making the virtual environment $venv with $("$python" --version)"
"$python" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/dev.txt
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
