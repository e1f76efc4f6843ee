"""The samplers as optimizers of PyTorch, for any `nn.Module` (extra `torch`).

The loss is torch's usual one, the mean over a minibatch; `num_data` and `prior` make the
potential U of it, and `lr` is the step size h on U, as everywhere in this library.
`ergodax.convert.from_torch_sgd` and `from_weight_decay` translate the settings of SGD.

`Functional` makes two functions of each, `init` and `update`, for `torch.func.vmap` over chains.
`Draws` collects what either draws, predicts, and goes to ArviZ. `sgld_step`, ... are the bare
updates, in place, on lists of tensors, with the gradient of U and the noise given.
"""

# pyright: reportMissingImports=false
try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "ergodax.bridge.torch needs PyTorch: pip install 'ergodax[torch]'."
    ) from error

from ergodax.bridge.torch.base import NonFiniteGradientError, Sampler
from ergodax.bridge.torch.draws import Draws
from ergodax.bridge.torch.functional import Functional, State
from ergodax.bridge.torch.module import parameters_of
from ergodax.bridge.torch.overdamped import PSGLD, RSGLD, SGLD, psgld_step, rsgld_step, sgld_step
from ergodax.bridge.torch.underdamped import SGHMC, SGNHT, sghmc_step, sgnht_step

__all__ = [
    "PSGLD",
    "RSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Draws",
    "Functional",
    "NonFiniteGradientError",
    "Sampler",
    "State",
    "parameters_of",
    "psgld_step",
    "rsgld_step",
    "sghmc_step",
    "sgld_step",
    "sgnht_step",
]
