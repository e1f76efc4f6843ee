"""Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015."""
