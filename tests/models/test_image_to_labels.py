"""The model from images to labels: against its formula, and what its attention finds."""

import numpy as np
import pytest
import torch

from sightline.explain.evidence.measures import leave_one_out
from sightline.models.image_to_labels import ImageToLabelsConfig
from sightline.models.image_to_text import Places
from sightline.models.source_to_labels import LabelsShape
from sightline.nn.image import CNNConfig
from sightline.outputs.file_labels import LabelMeasure
from sightline.outputs.image_labels import ImageLabelSubject


@torch.no_grad()
def test_the_model_is_its_formula():
    torch.manual_seed(1)
    model = ImageToLabelsConfig(size=6, dropout=0.5).build(Places(5, 2, 3), LabelsShape("one", 4)).eval()
    source = torch.randn(2, 6, 5)
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    x = source.double().numpy()
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    x = x * weights["normalise.weight"] + weights["normalise.bias"]
    x = np.maximum(0, x @ weights["project.weight"].T + weights["project.bias"])
    expected_size = model.pooling.inner.context_size
    pooled = model.pooling(torch.from_numpy(x).float(), need_weights=True)
    alpha = pooled.weights.double().numpy()
    np.testing.assert_allclose(alpha.sum(-1), 1, atol=1e-6)
    v = (alpha[:, 0, :, None] * x).sum(1)
    assert v.shape[-1] == expected_size
    np.testing.assert_allclose(model.scores(source), v @ weights["output.weight"].T + weights["output.bias"], atol=1e-5)


@torch.no_grad()
def test_only_self_attention_knows_where_a_place_is():
    places, shape = Places(8, 2, 3), LabelsShape("one", 2)
    source = torch.randn(1, 6, 8)
    turned = source[:, torch.tensor([3, 1, 5, 0, 2, 4])]
    for layers, same in ((0, True), (2, False)):
        model = ImageToLabelsConfig(size=8, layers=layers, heads=2).build(places, shape).eval()
        assert torch.allclose(model.scores(source), model.scores(turned), atol=1e-6) is same


@pytest.mark.parametrize(
    ("labels", "gold"),
    [("one", [0, 2, -1]), ("several", [[0.0, 1, 1], [0, 0, 0], [1, 1, 1]]), ("number", [9.0, 11.0, 10.0])],
)
def test_losses_are_those_of_torch(labels, gold):
    model = ImageToLabelsConfig(size=4).build(
        Places(3, 1, 2), LabelsShape(labels, 1 if labels == "number" else 3, mean=10.0, spread=2.0)
    )
    source, wanted = torch.randn(3, 2, 3), torch.tensor(gold, dtype=torch.double if labels == "number" else None)
    found = model.eval().loss(source, wanted)
    scores = model.scores(source)
    expected = {
        "one": lambda: torch.nn.functional.cross_entropy(scores, wanted.long(), ignore_index=-1, reduction="sum"),
        "several": lambda: torch.nn.functional.binary_cross_entropy_with_logits(
            scores, wanted.float(), reduction="sum"
        ),
        "number": lambda: ((scores - wanted) / 2).square().sum(),
    }[labels]()
    torch.testing.assert_close(found.total.double(), expected.double(), rtol=1e-4, atol=1e-4)
    assert found.tokens == (2 if labels == "one" else 3)


def test_attention_finds_what_the_mean_drowns():
    """One place of 36 says which label it is; the others are noise that is as large."""
    random = torch.Generator().manual_seed(0)
    source = torch.randn(96, 36, 8, generator=random)
    gold = torch.randint(0, 2, (96,), generator=random)
    spots = torch.randint(0, 36, (96,), generator=random)
    source[torch.arange(96), spots] = torch.tensor([[4.0, -4, 0, 0, 3, 0, 0, 0], [-4.0, 4, 0, 0, 3, 0, 0, 0]])[gold]
    model = ImageToLabelsConfig(size=16, dropout=0.0).build(Places(8, 6, 6), LabelsShape("one", 2))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        loss = model.loss(source, gold).total / 96
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1
    weights = model.pooling(model.annotate(source), need_weights=True).weights[:, 0]
    assert (weights.argmax(-1) == spots).float().mean() > 0.9
    for row in range(4):
        subject = ImageLabelSubject(model.eval(), source[row : row + 1], LabelMeasure(int(gold[row]), "one", 1.0, 0.0))
        assert leave_one_out(subject, [0])[0].argmax() == spots[row]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": 0}, "size is 0"),
        ({"layers": -1}, "layers is -1"),
        ({"layers": 1, "size": 6}, "must divide by 4"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_configurations_that_cannot_be_are_refused(change, reason):
    with pytest.raises(ValueError, match=reason):
        ImageToLabelsConfig(**change)


def test_places_of_another_shape_are_refused():
    model = ImageToLabelsConfig(size=4).build(Places(3, 2, 2), LabelsShape("one", 2))
    with pytest.raises(ValueError, match=r"expected 4 of 3 features for each image, 2 rows by 2 columns"):
        model.scores(torch.zeros(1, 5, 3))
    with pytest.raises(ValueError, match="gives 16 features for a place; the model expects 3"):
        ImageToLabelsConfig().build(
            Places(3, 8, 8), LabelsShape("one", 2), CNNConfig(size=32, channels=(8, 16), blocks=0).build()
        )
