"""Statistics of draws, each written once, by NumPy and ArviZ."""
