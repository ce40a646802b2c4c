#!/bin/sh
set -e
# dpkg calls this with `configure` and the version that was configured before, if any; RPM with 1, or 2 for an upgrade.
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

# A unit of its own for the check: with the user, environment, credentials, flags and sandbox that the service itself
# would start with, those of `systemctl edit` included.
check=/run/systemd/system/clustercheckd-check.service
said=/run/clustercheckd-check

settings_are_good() {
    mkdir -p "${check%/*}"
    {
        # Continued lines in one, of the service's sections alone: OnFailure= of [Unit], say, is not for a check.
        systemctl cat clustercheckd.service | sed -e ':a; /\\$/ { N; s/\\\n/ /; ba }' \
            -e '/^\[/h; G; /\n\[Service\][[:space:]]*$/!d; s/\n.*//' -e 's/^ExecStart[[:space:]]*=[[:space:]]*[^[:space:]].*$/& --check-settings/'
        printf '%s\n' Type=oneshot TimeoutStartSec=60 RuntimeDirectoryPreserve=yes Restart=no WatchdogSec=0 FileDescriptorStoreMax=0 \
            ExecStartPre= ExecStartPost= ExecStopPost= ExecReload= "StandardOutput=file:$said" StandardError=inherit
    } >"$check"
    rm -f "$said"
    systemctl daemon-reload
    result=0
    systemctl start clustercheckd-check.service 2>/dev/null || result=1
    rm -f "$check"
    systemctl reset-failed clustercheckd-check.service 2>/dev/null || :
    systemctl daemon-reload
    return $result
}

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # Only what runs: systemd keeps the port meanwhile, and no health check fails. The old process may be of any version:
    # it is asked for nothing.
    if ! systemctl --quiet is-active clustercheckd.service || settings_are_good; then
        systemctl try-restart clustercheckd.service || :
    else
        echo "clustercheckd was NOT restarted: its settings have mistakes." >&2
        [ -s "$said" ] || echo "see: journalctl --unit clustercheckd-check" >"$said"
        sed 's/^/    /' "$said" >&2
        echo "The process from before the upgrade goes on. Correct the settings before a reboot, and run:" >&2
        echo "    systemctl restart clustercheckd" >&2
    fi
    rm -f "$said"
fi

if [ "$1" != 2 ] && [ -z "$2" ]; then
    cat /usr/lib/clustercheckd/first-steps
elif ! systemctl --quiet is-enabled clustercheckd.service 2>/dev/null; then
    echo "clustercheckd is not enabled. To start it, now and at each boot, run: systemctl enable --now clustercheckd"
fi
