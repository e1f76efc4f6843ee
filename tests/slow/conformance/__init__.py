"""The contract of kernels, with every program that it takes."""
