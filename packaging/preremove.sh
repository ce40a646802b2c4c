#!/bin/sh
set -e
# dpkg calls this with `remove`, or with another word for an upgrade; RPM with 0, or 1 for an upgrade.
case "$1" in
    remove | 0)
        systemctl --quiet disable --now clustercheckd.service || :
        # One that a setting had stopped would stay in `systemctl --failed`.
        systemctl reset-failed clustercheckd.service 2>/dev/null || :
        ;;
esac
