"""Models as NumPyro's examples have them, on the bridge and by NumPyro's own NUTS."""
