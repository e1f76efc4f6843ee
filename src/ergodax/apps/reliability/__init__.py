"""Drills: runs that are killed, disks that are full, files that are damaged."""
