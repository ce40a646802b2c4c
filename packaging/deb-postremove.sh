#!/bin/sh
set -e

# The user stays: what it may own in the database or on disk must not fall to the next one with its number.
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
