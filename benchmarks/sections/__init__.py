"""The parts of the report, one file each; every one returns tables."""
