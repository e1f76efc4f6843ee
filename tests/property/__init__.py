"""Any input ends in a right answer or a named error: no hang, silent NaN or JAX traceback."""
