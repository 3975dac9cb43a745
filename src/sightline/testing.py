"""The laws of the contract of attention, as a suite for any mechanism: ours or yours.

::

    from sightline.testing import check_attention
    check_attention(MyAttentionConfig())

Each law is a function of a `Case` in `sightline.laws`; `laws()` lists them, so that a test can be made of each one. A
law that does not hold raises `AssertionError` with the law's name, what was expected and how far off the mechanism is.
"""

from collections.abc import Callable

import sightline.laws
from sightline.attention import AttentionConfig
from sightline.laws import Case

__all__ = ["Case", "Law", "check_attention", "laws"]

Law = Callable[[Case], None]


def laws() -> dict[str, Law]:
    """Every law, by name."""
    return {name.removeprefix("law_"): law for name, law in vars(sightline.laws).items() if name.startswith("law_")}


def check_attention(config: AttentionConfig, *, seed: int = 0, sizes: tuple[int, int, int] = (8, 8, 8)) -> list[str]:
    """Hold a mechanism to every law. Gives the names of the laws; raises `AssertionError` at the first broken one."""
    for name, law in laws().items():
        try:
            law(Case.of(config, seed, sizes))
        except AssertionError as error:
            raise AssertionError(f"{type(config).__name__} breaks the law {name!r}: {error}") from None
        except Exception as error:
            raise AssertionError(
                f"{type(config).__name__} breaks the law {name!r}: {type(error).__name__}: {error}"
            ) from error
    return list(laws())
