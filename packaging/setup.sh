#!/bin/sh
# Sets up what the packages are built and tested with. Says what it installs before it does.
#   usage: packaging/setup.sh venv DIRECTORY    the virtual environment that builds them
#          packaging/setup.sh tools             what tests/package runs besides
set -eu
PATH=$PATH:/usr/sbin:/sbin
ACTIONLINT=v1.7.12
KUSTOMIZE=v5.8.1
PROMETHEUS_OPERATOR=v0.91.0

say() { printf 'setup: %s\n' "$*"; }

install_packages() {
    [ $# -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "please install with your package manager: $*" >&2
        exit 1
    fi
    say "installing from the distribution: $*"
    sudo=""
    if [ "$(id -u)" -ne 0 ]; then
        sudo=sudo
        say "using sudo for this step only"
    fi
    $sudo apt-get update -qq
    # Nobody answers dpkg's question about a configuration file that was changed: keep it.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-confold "$@" >/dev/null
}

venv() {
    # The distribution's own Python, which is what gets bundled: with its security fixes, and made for its glibc. Another
    # one in PATH would bring libraries whose licences nobody knows.
    python=/usr/bin/python3
    "$python" -c 'import ensurepip' 2>/dev/null || install_packages python3 python3-venv
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    packages=""
    # As a shared library, which the executable loads.
    ldconfig -p | grep -q "libpython$version\.so" || packages="$packages libpython$version"
    command -v objcopy >/dev/null || packages="$packages binutils"
    command -v help2man >/dev/null || packages="$packages help2man"
    # shellcheck disable=SC2086 # a list of words
    install_packages $packages
    say "making the virtual environment $1 with $("$python" --version)"
    "$python" -m venv --clear "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r requirements/package.txt
}

tools() {
    packages=""
    for command in podman crun debootstrap lintian rpmlint rpm shellcheck; do
        command -v "$command" >/dev/null || packages="$packages $command"
    done
    command -v man >/dev/null || packages="$packages man-db"
    # shellcheck disable=SC2086
    install_packages $packages
    with_go actionlint "github.com/rhysd/actionlint/cmd/actionlint@$ACTIONLINT"
    with_go kustomize "sigs.k8s.io/kustomize/kustomize/v5@$KUSTOMIZE"
    # The schemas of its resources.
    if command -v go >/dev/null; then
        say "downloading the Prometheus operator $PROMETHEUS_OPERATOR with Go into build/tools"
        GOMODCACHE=$PWD/build/tools/modules go mod download -modcacherw \
            "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR" ||
            say "it could not be downloaded" >&2
    fi
}

# A program that is in no distribution. Without Go, its tests say that they were left out.
with_go() {
    if [ ! -x "build/tools/$1" ] && command -v go >/dev/null; then
        say "installing $2 with Go into build/tools"
        GOBIN=$PWD/build/tools go install "$2" 2>/dev/null || say "$1 could not be installed" >&2
    fi
}

"$@"
