"""The device that is asked for, or a line that says why it cannot be used."""

import torch

from headwise.errors import ConfigError


def choose_device(name: str | None, local_rank: int = 0) -> torch.device:
    """Return the device of a name, or an accelerator if there is one; never another instead."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name}: torch knows no such device") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError(f"--device {name}: this torch sees no such device on this machine")
        device = torch.device("cuda", local_rank if device.index is None else device.index)
    try:
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.zeros(1, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"--device {device}: cannot be used here: {reason}") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
