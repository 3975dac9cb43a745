"""Evidence about real models, against computations that go another way; and two toys that it must tell apart."""

import copy
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sightline.attention.pooling import PoolingConfig
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.evidence import TextSubject, believe, leave_one_out, rollout, rollout_records, subject
from sightline.explain.evidence.measures import head_costs, uniform_cost
from sightline.explain.evidence.subject import PoolSubject
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig
from sightline.nn.annotating import TokenEmbedding
from sightline.records import Record, Slots
from sightline.vocabulary import END, PADDING, START

WORDS = 12
SOURCE, WRITTEN = [7, 5, 9, 4, END], [5, 9, 9, END]
TRANSFORMER = TransformerConfig(8, 2, 16, 2, 2, dropout=0.5, tied="all")
MODELS = {
    "transformer": TRANSFORMER,
    "rnnsearch": RNNSearchConfig(6, 8, dropout=0.5),
    "luong": LuongConfig(6, 8, 4, input_feeding=True, dropout=0.5),
    "grammar": GrammarConfig(6, 8, 4, layers=2, dropout=0.5),
    "seq2seq": Seq2SeqConfig(6, 8, dropout=0.5),
}


def build(kind):
    model = MODELS[kind].build(WORDS, WORDS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # an untrained model hardly cares what it reads
    return model


def written_log_probs(model, source):
    """As the model's own `logits` has it."""
    model = model.eval()
    logits = model.logits(torch.tensor([source]), torch.tensor([[START, *WRITTEN[:-1]]]))[0]
    return torch.log_softmax(logits, dim=-1)[torch.arange(len(WRITTEN)), torch.tensor(WRITTEN)]


@pytest.mark.parametrize("kind", MODELS)
def test_hiding_a_word_is_giving_it_the_mean_embedding(kind):
    model = build(kind)
    one = TextSubject(model, SOURCE, WRITTEN)
    keep = torch.ones(3, len(SOURCE), dtype=torch.bool)
    keep[1, 2] = keep[2, 0] = keep[2, 3] = False
    found = one.log_probs(keep)
    assert model.training, "the model is as it was before"
    assert not model.source_embedding._forward_hooks
    other = copy.deepcopy(model)
    other.source_embedding = copy.deepcopy(model.source_embedding)  # of its own: the target must not change
    weights = other.source_embedding.weight.data
    mean = weights[[i for i in range(WORDS) if i not in (PADDING, START, END)]].mean(dim=0)
    for row, hidden in enumerate([[], [9], [7, 4]]):
        weights.copy_(model.source_embedding.weight.data)
        weights[hidden] = mean
        torch.testing.assert_close(found[row], written_log_probs(other, SOURCE).detach(), rtol=1e-4, atol=1e-5)
    assert (found[0] - found[1]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", MODELS)
def test_gradient_times_input_is_that_of_each_row(kind):
    model = build(kind)
    model.source_embedding = copy.deepcopy(model.source_embedding)
    with torch.no_grad():
        found = TextSubject(model, SOURCE, WRITTEN).gradient_times_input([0, 2])
    assert all(parameter.grad is None for parameter in model.parameters())
    for row, values in zip([0, 2], found, strict=True):
        model.zero_grad()
        written_log_probs(model, SOURCE)[row].backward()
        table = model.source_embedding.weight
        expected = (table.grad[SOURCE] * table.detach()[SOURCE]).sum(dim=-1)
        torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-5)


def test_long_inputs_are_read_in_batches(monkeypatch):
    one = TextSubject(build("transformer"), SOURCE, WRITTEN)
    whole = leave_one_out(one, range(4)), one.gradient_times_input(range(4))
    for limit in ("BATCH_TOKENS", "GRADIENT_TOKENS", "LOGITS"):
        monkeypatch.setattr(subject, limit, 20)
    np.testing.assert_allclose(leave_one_out(one, range(4)), whole[0], atol=1e-5)
    torch.testing.assert_close(one.gradient_times_input(range(4)), whole[1], rtol=1e-4, atol=1e-5)


def test_the_end_is_never_hidden():
    assert TextSubject(build("luong"), SOURCE, WRITTEN).hideable.tolist() == [True, True, True, True, False]


def test_nothing_is_hidden_from_another_thread():
    model = build("rnnsearch").eval()
    one = TextSubject(model, SOURCE, WRITTEN)
    expected, found = model.source_embedding(one.tokens), []
    with one._embedding_seen(torch.zeros(1, 5, dtype=torch.bool)) as seen:
        thread = threading.Thread(target=lambda: found.append(model.source_embedding(one.tokens)))
        thread.start()
        thread.join()
        assert not seen
        assert not torch.equal(model.source_embedding(one.tokens.unsqueeze(0))[0], expected)
    assert torch.equal(found[0], expected)


def test_nothing_to_explain_is_said():
    with pytest.raises(UserError, match="no tokens"):
        TextSubject(build("luong"), [], WRITTEN)
    with pytest.raises(UserError, match="the output is empty"):
        TextSubject(build("luong"), SOURCE, [])
    with pytest.raises(ValueError, match="no attention attends to the columns; there is none"):
        uniform_cost(TextSubject(build("seq2seq"), SOURCE, WRITTEN))


def test_uniform_attention_is_that_of_a_query_that_asks_nothing():
    model = build("transformer").eval()
    blind = copy.deepcopy(model)
    for layer in blind.decoder:
        nn.init.zeros_(layer.cross.project_query.weight)
        nn.init.zeros_(layer.cross.project_query.bias)
    expected = (written_log_probs(model, SOURCE) - written_log_probs(blind, SOURCE)).mean().item()
    assert abs(expected) > 1e-3
    assert uniform_cost(TextSubject(model, SOURCE, WRITTEN)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_a_cut_head_is_one_whose_output_is_not_read():
    model = build("transformer").eval()
    subjects = [TextSubject(model, SOURCE, WRITTEN), TextSubject(model, SOURCE[2:], WRITTEN)]
    costs = head_costs(subjects)
    assert len(costs) == 2 * 2 * 3  # heads × layers × (encoder, decoder, across)
    assert [one.cost for one in costs] == sorted((one.cost for one in costs), reverse=True)
    for one in costs:
        cut = copy.deepcopy(model)
        cut.get_submodule(one.name).output.weight.data[:, 4 * one.head : 4 * one.head + 4] = 0.0
        lost = [written_log_probs(model, s) - written_log_probs(cut, s) for s in (SOURCE, SOURCE[2:])]
        assert one.cost == pytest.approx(torch.stack(lost).mean().item(), abs=1e-5)
    only = head_costs(subjects[:1], names=["decoder.1.cross"])
    assert {(one.name, one.head) for one in only} == {("decoder.1.cross", 0), ("decoder.1.cross", 1)}


def test_heads_are_ablated_for_a_limited_time_those_of_the_output_first(monkeypatch):
    monkeypatch.setattr("sightline.explain.evidence.panel.HEAD_SECONDS", 0)
    one = TextSubject(build("transformer").eval(), SOURCE, WRITTEN)
    belief = believe(one, np.full((4, 5), 0.2))
    assert {head.name for head in belief.heads} == {"decoder.1.cross"}
    assert belief.about.endswith("the last 2 of 12 heads ablated (in 0 seconds)")


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "luong"])
def test_the_panel_of_a_model_from_its_own_records(kind):
    model = build(kind).eval()
    one = TextSubject(model, SOURCE, WRITTEN)
    with capture(model) as trace:
        one.log_probs(torch.ones(1, 5, dtype=torch.bool))
    records = [record for record in trace.records() if model.attends_to_source(record.name)]
    belief = believe(one, records)
    found = {finding.key: finding.value for finding in belief.findings}
    assert belief.rows == 4
    assert found["uniform"] == pytest.approx(uniform_cost(one), abs=1e-6)
    assert found["special"] == pytest.approx(np.mean([record.matrix()[:, 4].mean() for record in records]), abs=1e-6)
    assert belief.heads == head_costs([one])


def test_rollout_by_hand():
    first, second = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    # ½A + ½I: [[1, 0], [¼, ¾]] and [[½, ½], [0, 1]]; their product from the left.
    found = rollout([first, second])
    np.testing.assert_allclose(found[0], [[1.0, 0.0], [0.25, 0.75]])
    np.testing.assert_allclose(found[1], [[0.625, 0.375], [0.25, 0.75]])
    hidden = rollout([np.zeros((2, 2)), second])[1]  # a row that looked at nothing keeps what it had
    np.testing.assert_allclose(hidden, [[0.5, 0.5], [0.0, 1.0]])


def test_rollout_of_records_is_one_more_stack_of_records():
    axis = Slots(2)
    one, other = np.eye(2, dtype=np.float32), np.array([[0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
    records = [
        Record(f"encoder.{layer}", layer, h, axis, axis, w) for layer in (0, 1) for h, w in enumerate([one, other])
    ]
    found = rollout_records(records)
    assert [(record.name, record.layer, record.head) for record in found] == [
        ("encoder.rollout.0", 0, 0),
        ("encoder.rollout.1", 1, 0),
    ]
    mixed = np.array([[0.75, 0.25], [0.25, 0.75]])  # heads averaged: ½ everywhere
    np.testing.assert_allclose(found[1].matrix(), mixed @ mixed)
    with pytest.raises(ValueError, match="attends from 2 rows to 3 other columns"):
        rollout_records([Record("cross", 0, 0, axis, Slots(3), np.ones((2, 3)))])


class Classifier(nn.Module):
    """Embedding, pooling, label. With ``shortcut`` every position says what all say: weights cannot matter."""

    def __init__(self, shortcut):
        super().__init__()
        self.embedding = TokenEmbedding(20, 16, PADDING)
        self.pooling = PoolingConfig().build(16)
        self.label = nn.Linear(16, 9)
        self.shortcut = shortcut

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        values = embedded.mean(dim=1, keepdim=True).expand_as(embedded) if self.shortcut else embedded
        return self.label(self.pooling(embedded, values).context.squeeze(1))


def needle(random):
    """Eight tokens, one of them (of 16 to 19) says the label."""
    tokens = torch.randint(4, 16, (32, 8), generator=random)
    labels = torch.randint(0, 4, (32,), generator=random)
    tokens[torch.arange(32), torch.randint(0, 8, (32,), generator=random)] = 16 + labels
    return tokens, labels


def counting(random):
    """Eight tokens, and how many of them are below 12: every one is needed."""
    tokens = torch.randint(4, 20, (32, 8), generator=random)
    return tokens, (tokens < 12).sum(dim=1)


def trained_toy(data, shortcut):
    model, random = Classifier(shortcut), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        tokens, labels = data(random)
        optimiser.zero_grad()
        F.cross_entropy(model(tokens), labels).backward()
        optimiser.step()
    tokens, labels = data(random)
    assert (model(tokens).argmax(dim=-1) == labels).float().mean() > 0.8
    return model, [
        PoolSubject(model, row, label, embedding=model.embedding, attention="pooling")
        for row, label in zip(tokens.tolist(), labels.tolist(), strict=True)
    ]


def hiding(model, subjects, order=slice(None)):
    """How many times as much hiding the top one costs, and what uniform attention costs: over all inputs."""
    costs = []
    for one in subjects:
        with capture(model) as trace:
            one.log_probs(torch.ones(1, 8, dtype=torch.bool))
        weights = trace["pooling"].weights[0, 0].numpy()
        found = {finding.key: finding for finding in believe(one, weights[:, order], heads=False).findings}
        costs.append((found["removal"].value, found["removal"].reference, found["uniform"].value))
    top, others, uniform = np.mean(costs, axis=0)
    return top / others if others > 0 else np.inf, uniform


@pytest.mark.slow
def test_the_panel_tells_looking_that_matters_from_looking_that_does_not():
    model, subjects = trained_toy(needle, shortcut=False)
    ratio, uniform = hiding(model, subjects)
    assert ratio > 5
    assert uniform > 1.0
    assert hiding(model, subjects, order=np.roll(np.arange(8), 3))[0] < 2
    model, subjects = trained_toy(counting, shortcut=True)
    ratio, uniform = hiding(model, subjects)
    assert ratio < 1.5
    assert uniform == pytest.approx(0.0, abs=1e-3)
