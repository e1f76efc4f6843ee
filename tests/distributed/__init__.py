"""Runs over several devices and several processes."""
