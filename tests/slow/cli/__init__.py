"""Tests of the command line that take long."""
