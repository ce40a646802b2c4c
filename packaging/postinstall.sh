#!/bin/sh
set -e
# dpkg calls this with `configure` and the version that was configured before, if any; RPM with 1, or 2 for an upgrade.
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload || :
    # Only what runs: systemd keeps the port meanwhile, and no health check fails.
    systemctl try-restart clustercheckd.service || :
fi

if [ "$1" != 2 ] && [ -z "$2" ]; then
    cat /usr/lib/clustercheckd/first-steps
elif ! systemctl --quiet is-enabled clustercheckd.service 2>/dev/null; then
    echo "clustercheckd is not enabled. To start it, now and at each boot, run: systemctl enable --now clustercheckd"
fi
