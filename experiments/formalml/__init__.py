"""Bias, variance reduction and Neal's funnel: what textbooks say of stochastic-gradient MCMC."""
