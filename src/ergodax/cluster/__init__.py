"""Devices and processes that sample together: meshes, and what processes tell each other."""
