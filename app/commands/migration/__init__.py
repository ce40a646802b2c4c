"""What `clustercheckd migrate` reads: how the script runs today, and what it would make of that."""
