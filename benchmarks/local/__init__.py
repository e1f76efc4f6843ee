"""Local learning coefficients beside what is known of them."""
