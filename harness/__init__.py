"""Real Galera nodes, clustercheckd and HAProxy here: for the demo, the tests, the benchmarks."""
