"""`sightline mechanisms` and `sightline check`."""

import dataclasses
import sys
from pathlib import Path

from sightline.cli.output import print_json, print_table
from sightline.config import ConfigError, kinds
from sightline.errors import UserError

FAMILIES = {
    "score": "how well a query matches a key",
    "relative_position": "what the distance adds to the scaled dot-product score",
    "normaliser": "how scores become weights",
    "pooling": "a learned query around any mechanism: reads a sequence into one vector",
    "attention": "mechanisms: 'composed' is any score with any normaliser, 'multi_head' wraps any of them",
}


def print_catalogue(json: bool) -> None:
    """Print every kind by family, without importing any of them."""
    catalogue = {family: kinds(family) for family in FAMILIES}
    if json:
        print_json(catalogue)
    else:
        rows = ((family, ", ".join(names), FAMILIES[family]) for family, names in catalogue.items())
        print_table(("family", "kinds", "what it is"), rows)


def check_mechanism(mechanism: str, normaliser: str | None, heads: int, seed: int, output: str) -> None:
    """Run every law, print the results, and exit with 1 if one is broken."""
    if heads < 1:
        raise UserError(f"--heads is {heads}; it must be at least 1")
    results = _results(mechanism, normaliser, heads, seed)
    broken = [name for name, error in results.items() if error]
    if output == "json":
        laws = {name: {"holds": error is None, "error": error} for name, error in results.items()}
        print_json({"mechanism": mechanism, "holds": not broken, "laws": laws})
    else:
        rows = (
            (name.replace("_", " "), "broken" if error else "holds", error or "") for name, error in results.items()
        )
        print_table(("law", "", "what went wrong"), rows)
        print(f"{len(results) - len(broken)} of {len(results)} laws hold")
    sys.exit(1 if broken else 0)


def _results(mechanism: str, normaliser: str | None, heads: int, seed: int) -> dict[str, str | None]:
    from sightline.attention import AttentionConfig, MultiHeadConfig, NormaliserConfig
    from sightline.machine import check_seed
    from sightline.testing import Case, laws

    try:
        if mechanism.endswith(".json"):
            config = AttentionConfig.loads(Path(mechanism).read_text(encoding="utf-8-sig"))
        else:
            config = AttentionConfig.from_json(mechanism)
        if normaliser is not None:
            names = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
            if "normaliser" not in names:
                raise UserError(f"{mechanism} has no normaliser to choose")
            config = dataclasses.replace(config, normaliser=NormaliserConfig.from_json(normaliser))  # type: ignore[type-var]
        if heads > 1:
            config = MultiHeadConfig(heads=heads, head_size=4, inner=config)
        Case.of(config, check_seed(seed))  # a configuration that cannot be built is refused
    except UnicodeDecodeError as error:
        raise UserError(f"{mechanism} is not UTF-8 text: byte {error.start} cannot be read") from None
    except (ConfigError, ValueError, RuntimeError) as error:
        raise UserError(str(error)) from None
    results: dict[str, str | None] = {}
    for name, law in laws().items():
        try:
            law(Case.of(config, seed))
            results[name] = None
        except Exception as error:  # any error breaks the law
            results[name] = str(error) or type(error).__name__
    return results
