"""clustercheckd: tells load balancers whether a Galera node may take traffic."""

__version__ = "0.1.0"
