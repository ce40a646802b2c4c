#!/bin/sh
set -e
# dpkg calls this with `remove`, or with another word for an upgrade; RPM with 0, or 1 for an upgrade.
case "$1" in remove | 0) systemctl --quiet disable --now clustercheckd.service || : ;; esac
