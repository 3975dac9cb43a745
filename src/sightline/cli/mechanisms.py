"""What `sightline mechanisms` and `sightline check` do."""

import dataclasses
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sightline.config import ConfigError, kinds
from sightline.errors import UserError

FAMILIES = {
    "score": "how well a query goes with a key",
    "relative_position": "what the distance adds to the scaled dot score",
    "normaliser": "how scores become weights",
    "pooling": "a learned query around any mechanism: reads a sequence into one vector",
    "attention": "mechanisms: 'composed' is any score with any normaliser, 'multi_head' wraps any of them",
}


def print_catalogue(as_json: bool) -> None:
    """Every kind by family, without importing any of them."""
    if as_json:
        print(json.dumps({family: kinds(family) for family in FAMILIES}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("family", "kinds", "what it is"):
        table.add_column(name, overflow="fold")
    for family, meaning in FAMILIES.items():
        table.add_row(family, ", ".join(kinds(family)), meaning)
    Console().print(table)


def check_mechanism(mechanism: str, normaliser: str | None, heads: int, seed: int, output: str) -> int:
    """Run every law, print how each went, give the exit code: 0 if all hold, 1 if not."""
    if heads < 1:
        raise UserError(f"--heads is {heads}; it must be at least 1")
    results = _results(mechanism, normaliser, heads, seed)
    broken = [name for name, error in results.items() if error]
    if output == "json":
        laws = {name: {"holds": error is None, "error": error} for name, error in results.items()}
        print(json.dumps({"mechanism": mechanism, "holds": not broken, "laws": laws}, indent=2))
        return 1 if broken else 0
    console = Console()
    table = Table("law", "", "what went wrong", box=None, padding=(0, 2, 0, 0))
    for name, error in results.items():
        # What a stranger's mechanism says is text, not markup.
        table.add_row(name.replace("_", " "), "[red]broken" if error else "[green]holds", Text(error or ""))
    console.print(table)
    console.print(f"{len(results) - len(broken)} of {len(results)} laws hold")
    return 1 if broken else 0


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
        Case.of(config, check_seed(seed))  # a configuration that cannot be built breaks no law: it is refused
    except UnicodeDecodeError as error:
        raise UserError(f"{mechanism} is not UTF-8 text: byte {error.start} cannot be read") from None
    except (ConfigError, ValueError, RuntimeError) as error:
        raise UserError(str(error)) from None
    results: dict[str, str | None] = {}
    for name, law in laws().items():
        try:
            law(Case.of(config, seed))
            results[name] = None
        except Exception as error:  # a law that stops with any error is a law that does not hold
            results[name] = str(error) or type(error).__name__
    return results
