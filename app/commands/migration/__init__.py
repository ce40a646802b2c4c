"""The parts of `clustercheckd migrate`: find what runs the script, and evaluate the script's settings."""
