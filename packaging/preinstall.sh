#!/bin/sh
set -e
# Before the files, one of which belongs to the group. The account in the database has the same name: that is how
# unix_socket authentication knows it.
echo 'u clustercheck - "Galera health check" /' | systemd-sysusers -
