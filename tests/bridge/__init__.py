"""Tests of the bridges to other libraries."""
