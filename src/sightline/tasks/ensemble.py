"""Several trained models as one: at every step, the mean of their probabilities."""

from collections.abc import Sequence

from sightline.errors import UserError
from sightline.tasks.predictor import Member, Predictor


class Ensemble(Predictor):
    """Predicts as `Translator` does. The models may differ in everything but the vocabulary they write with."""

    def __init__(self, translators: Sequence[Predictor]) -> None:
        self._members = tuple(member for translator in translators for member in translator.members)
        if not self._members:
            raise UserError("an ensemble needs at least one model")
        first, *others = self._members
        for other in others:
            if not first.target.same_as(other.target):
                raise UserError(
                    f"{first.name} and {other.name} write with different vocabularies; models of an ensemble must be "
                    f"trained with the same tokeniser, as `sightline train --from {first.name}` does"
                )

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members
