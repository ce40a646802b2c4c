#!/bin/sh
set -e
# dpkg calls this with `configure` and the version that was configured before, if any; RPM with 1, or 2 for an upgrade.
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

main_pid() {
    systemctl show --property MainPID --value clustercheckd.service
}

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if systemctl --quiet is-active clustercheckd.service; then
        before=$(main_pid) result=0 began=$(date +%s)
        # Not `clustercheckd reload`: rpm 4.20 runs this script without a network.
        systemctl --quiet reload clustercheckd.service 2>/dev/null || result=$?
        if [ $result != 0 ]; then
            journalctl --sync || :
            said=$(journalctl --quiet --unit clustercheckd.service --since "@$began" --output cat | grep '^clustercheckd: ' || :)
        fi
        if [ "$before" != "$(main_pid)" ]; then
            # With what the new process tells.
            [ $result = 0 ] || echo "$said" >&2
        elif [ $result = 0 ]; then
            # A version that has no successor: systemd keeps the port meanwhile, and health checks wait.
            systemctl try-restart clustercheckd.service || :
        else
            echo "clustercheckd was NOT replaced:" >&2
            echo "$said" | sed 's/^/    /' >&2
            echo "The process from before the upgrade goes on. Correct that before a reboot, and run:" >&2
            echo "    clustercheckd reload" >&2
        fi
    else
        # One that a setting has stopped.
        systemctl try-restart clustercheckd.service || :
    fi
fi

if [ "$1" != 2 ] && [ -z "$2" ]; then
    cat /usr/lib/clustercheckd/first-steps
elif ! systemctl --quiet is-enabled clustercheckd.service 2>/dev/null; then
    echo "clustercheckd is not enabled. To start it, now and at each boot, run: systemctl enable --now clustercheckd"
fi
