#!/bin/bash
# Starts a node. It makes a new cluster in two cases only: this is the first Pod, has no data and no other Pod exists;
# or this node was the last one to stop and no other Pod exists. Otherwise it joins the others.
set -eu

data=${DATA:-/var/lib/mysql}
nodes=galera-0.galera-nodes,galera-1.galera-nodes,galera-2.galera-nodes

someone_else_is_there() {
    local node
    for node in ${nodes//,/ }; do
        if [ "${node%%.*}" != "$HOSTNAME" ] && getent hosts "$node" >/dev/null; then
            return 0
        fi
    done
    return 1
}

options=(
    --wsrep-node-name="$HOSTNAME"
    --wsrep-node-address="$POD_IP"
    --wsrep-cluster-address="gcomm://$nodes"
)
if [ -e "$data/grastate.dat" ]; then
    if grep -q '^safe_to_bootstrap: 1' "$data/grastate.dat" && ! someone_else_is_there; then
        options+=(--wsrep-new-cluster)
    fi
elif [ "$HOSTNAME" = galera-0 ] && ! someone_else_is_there; then
    options+=(--wsrep-new-cluster)
fi
exec docker-entrypoint.sh mariadbd "${options[@]}"
