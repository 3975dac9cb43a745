"""The commands about mechanisms: mechanisms, check."""

import sys
from typing import Annotated, Literal

import tyro


def mechanisms(json: bool = False) -> None:
    """List every score, normaliser and mechanism there is, built in and installed.

    Args:
        json: Print JSON instead of a table.
    """
    from sightline.cli.catalogue import print_catalogue

    print_catalogue(json)


def check(
    mechanism: tyro.conf.Positional[str],
    normaliser: str | None = None,
    heads: Annotated[int, tyro.conf.arg(metavar="N")] = 1,
    seed: int = 0,
    output: Literal["table", "json"] = "table",
) -> None:
    """Hold a mechanism to the laws of the contract: padding, masks, caches, gradients, and so on.

    Args:
        mechanism: A mechanism or a score by name (see `sightline mechanisms`), or a .json file with its configuration.
        normaliser: What turns scores into weights; left out, the mechanism's own default.
        heads: With more than one, the mechanism is wrapped in multi-head attention.
        seed: The numbers it is tried on.
        output: A table for people or JSON for programs.
    """
    from sightline.cli.catalogue import check_mechanism

    sys.exit(check_mechanism(mechanism, normaliser, heads, seed, output))
