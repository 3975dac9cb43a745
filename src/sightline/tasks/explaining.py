"""Explanations by their earlier names; `sightline.outputs.sequence_explain` makes them."""

from sightline.explanation import Explanation
from sightline.outputs.sequence_explain import KEPT, explain_sequence, main_map, measured_shift  # noqa: F401
from sightline.tasks.explain import LARGEST, LIKELIEST, WHOLE, ExplainOptions  # noqa: F401
from sightline.tasks.token_axis import token_axis as axis_of  # noqa: F401
from sightline.tasks.token_axis import word_numbers  # noqa: F401
from sightline.tasks.translator import Translator

Wanted = ExplainOptions


def explain(translator: Translator, text: str, wanted: Wanted | None = None) -> Explanation:
    """Everything there is to show about one text."""
    return explain_sequence(translator.as_run(), text, wanted or Wanted())
