"""clustercheckd: tells load balancers whether a Galera node may take traffic."""

__version__ = "1.1.0.dev0"
