"""Tests of the gallery: what is computed, and the pages in a browser."""
