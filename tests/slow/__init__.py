"""Tests that run for minutes: `make test-slow`."""
