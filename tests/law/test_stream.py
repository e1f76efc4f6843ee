"""Logistic regression from files sorted by label: the posterior, if pages are small.

Numbers compared: 5, and 5 in the control. The epoch, of 16 batches, is short against
the chain's memory, some 50 steps, so that most of the noise of batches cancels.
"""

import numpy as np
import pytest

import ergodax as ex

from . import logistic_posterior

pytestmark = pytest.mark.slow

N, BLOCK, SIZE = 80, 40, 5


@pytest.fixture(scope="module")
def exact():
    return logistic_posterior.problem(N)


def kernel(exact, folder, **options):
    """SGLD on files sorted by label, with a step of 1/25 of the shortest time."""
    order = np.argsort(exact.labels, kind="stable")
    np.save(folder / "X.npy", exact.features[order].astype("f4"))
    np.save(folder / "y.npy", exact.labels[order].astype("f4"))
    paths = folder / "X.npy", folder / "y.npy"
    source = ex.data.npy(*paths, block_rows=BLOCK, **options)
    posterior = ex.Posterior(
        logistic_posterior.log_prior, logistic_posterior.log_likelihood, source
    )
    return ex.sgld(ex.Minibatch(posterior, SIZE), 0.04 / np.linalg.eigvalsh(exact.hessian).max())


def test_small_pages_of_sorted_files_give_the_posterior(exact, tmp_path, key):
    sampler = kernel(exact, tmp_path, page_rows=2)
    logistic_posterior.assert_posterior(sampler, exact, key, num_steps=1800)


def test_a_page_of_one_label_is_rejected(exact, tmp_path, key):
    """Each block is one half of the sorted file, and is used for 200 steps."""
    sampler = kernel(exact, tmp_path, page_rows=40, passes=25)
    with pytest.raises(AssertionError, match="the law differs"):
        logistic_posterior.assert_posterior(sampler, exact, key, num_steps=1800)
