"""What is shown of a model that chose positions: the weights that it chose by, which are its output."""

from collections.abc import Sequence
from typing import cast

import torch

from sightline.explain.explanation import Explanation
from sightline.inputs.files import FileItem
from sightline.inputs.series import SeriesPart
from sightline.inputs.series_subject import SeriesPositionsSubject
from sightline.models.pointer import ChosenPositions, Pointer
from sightline.outputs.vectors_explain import AttentionView, attention_maps, explanation_of, first_batch
from sightline.records import Tokens
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run

END = "end"


def explain_positions(
    run: Run, x: FileItem, parts: Sequence[SeriesPart], pointed: ChosenPositions, once: bool, options: ExplainOptions
) -> Explanation:
    """The distribution over the positions of the first part of an item at each choice."""
    batch, notes = first_batch(run, parts)
    frames, model = run.input.size(parts[0]), cast("Pointer", run.model)
    places = torch.tensor([pointed.places], device=run.device)
    rows = [str(place) for place in pointed.places] + [END] * pointed.complete
    given = places if pointed.complete else places[:, :-1]
    view = AttentionView(
        rows=Tokens(tuple(rows), special=(len(rows) - 1,) if pointed.complete else ()),
        columns=Tokens((*map(str, range(frames)), END), special=(frames,)),
        again=lambda: model.follow(model.annotate(batch), given, once),
        subject=lambda: SeriesPositionsSubject(model, batch, places, pointed.complete, once),
        title=f"From the choices to the {run.input.source_name}",
        heads=False,
    )
    maps = attention_maps(run, view, options, notes)
    return explanation_of(run, x, " ".join(map(str, pointed.places)), maps, notes)
