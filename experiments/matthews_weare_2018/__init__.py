"""Matthews and Weare, Langevin Markov chain Monte Carlo with stochastic gradients, 2018."""
