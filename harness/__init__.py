"""Real Galera nodes, clustercheckd and HAProxy on this machine, for the demo, the tests and the
benchmarks.
"""
