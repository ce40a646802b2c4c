"""What real MariaDB nodes answer to one poll, state by state: name and value of each row, as sent.

The unit tests decide on these rows; tests/cluster brings a node into each state that can be held
and finds the same answers, on whichever release of MariaDB it runs.
"""

from collections.abc import Mapping

from app.database.rows import Cell, parse_node_state
from app.verdict.node_state import NodeState

VERSIONS = (
    "10.11.19-MariaDB-0+deb12u1",
    "11.8.6-MariaDB-0+deb13u1 from Debian",
    "11.8.9-MariaDB-4 from Debian",
)
"""Servers that answered so. Only the version differs; 11.8.6 sends the same with its plugin
wsrep_provider on."""

NOT_EVERYWHERE = {
    "wsrep_flow_control_status",
    "super_read_only",
    "offline_mode",
    "pxc_maint_mode",
    "transaction_read_only",
}
"""What 10.11 has no row for: Percona XtraDB Cluster and MySQL have these, MariaDB 11.1 and newer
the last one."""

SYNCED = {
    "Threads_connected": "5",
    "Uptime": "2812",
    "wsrep_local_recv_queue": "0",
    "wsrep_flow_control_sent": "0",
    "wsrep_flow_control_recv": "0",
    "wsrep_flow_control_active": "false",
    "wsrep_local_state": "4",
    "wsrep_local_state_comment": "Synced",
    "wsrep_cluster_size": "3",
    "wsrep_cluster_conf_id": "3",
    "wsrep_cluster_state_uuid": "fbfb0a61-e7ab-11f1-8d5a-df9cc212a297",
    "wsrep_cluster_status": "Primary",
    "wsrep_connected": "ON",
    "wsrep_local_index": "0",
    "wsrep_incoming_addresses": "10.0.0.11:3306,10.0.0.12:3306,10.0.0.13:3306",
    "wsrep_last_committed": "42",
    "wsrep_ready": "ON",
    "max_connections": "151",
    "max_user_connections": "0",
    "read_only": "OFF",
    "skip_networking": "OFF",
    "tx_read_only": "OFF",
    "version": VERSIONS[0],
    "wsrep_desync": "OFF",
    "wsrep_node_name": "node1",
    "wsrep_OSU_method": "TOI",
    "wsrep_on": "ON",
    "wsrep_provider": "/usr/lib/galera/libgalera_smm.so",
    "wsrep_reject_queries": "NONE",
}
DONOR = SYNCED | {
    "wsrep_local_state": "2",
    "wsrep_local_state_comment": "Donor/Desynced",
}
DESYNCED = DONOR | {"wsrep_desync": "ON"}
JOINED = SYNCED | {"wsrep_local_state": "3", "wsrep_local_state_comment": "Joined"}
"""For some milliseconds, when a FLUSH TABLES WITH READ LOCK ends."""
REJECTING = SYNCED | {"wsrep_reject_queries": "ALL"}
NON_PRIMARY = SYNCED | {
    "wsrep_local_state": "0",
    "wsrep_local_state_comment": "Initialized",
    "wsrep_cluster_conf_id": "18446744073709551615",
    "wsrep_cluster_status": "non-Primary",
    "wsrep_cluster_size": "1",
    "wsrep_ready": "OFF",
}
"""The minority side of a partition, and the last of three whose peers were killed."""
JOINING = SYNCED | {
    "wsrep_local_state": "1",
    "wsrep_local_state_comment": "Joining: receiving State Transfer",
    "wsrep_cluster_conf_id": "18446744073709551615",
    "wsrep_cluster_status": "non-Primary",
    "wsrep_local_index": "18446744073709551615",
    "wsrep_ready": "OFF",
}
"""In an incremental transfer."""
JOINING_IN_PRIMARY = JOINING | {
    "wsrep_cluster_status": "Primary",
    "wsrep_local_index": "0",
}
"""At the end of it."""
OF_A_PROVIDER = {
    "wsrep_incoming_addresses",
    "wsrep_last_committed",
    "wsrep_local_recv_queue",
    "wsrep_flow_control_sent",
    "wsrep_flow_control_recv",
    "wsrep_flow_control_active",
    "wsrep_local_state",
    "wsrep_local_state_comment",
}
NOT_GALERA = {
    name: value for name, value in SYNCED.items() if name not in OF_A_PROVIDER
} | {
    "Threads_connected": "1",
    "wsrep_cluster_size": "0",
    "wsrep_cluster_status": "Disconnected",
    "wsrep_connected": "OFF",
    "wsrep_local_index": "18446744073709551615",
    "wsrep_ready": "OFF",
    "wsrep_node_name": "plain",
    "wsrep_on": "OFF",
    "wsrep_provider": "none",
}
"""A server started without a provider."""


def parsed(rows: Mapping[str, Cell]) -> NodeState:
    """Parse rows that must give a state."""
    state = parse_node_state(rows.items())
    assert isinstance(state, NodeState)
    return state
