"""The Universal Transformer for labels and for texts: padding, losses and their parts, search, runs, views, exports."""

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import sightline
from classify_samples import ordered
from invoke import run as invoke
from sightline import capture
from sightline.align.aligning import MapSelector, attentions_to_source, sides_of, weights_of_words
from sightline.errors import UserError
from sightline.explain.thinking import watch_repeats
from sightline.export.ctranslate2 import write_ctranslate2
from sightline.export.huggingface import write_huggingface
from sightline.export.onnx import write_onnx
from sightline.export.run import export_run
from sightline.kernels import transformer_search, unpadded
from sightline.models import encoder as encoders
from sightline.models.encoder import EncoderConfig
from sightline.models.heads import build_labeller
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.models.text_to_text import TextToTextConfig
from sightline.models.universal import UniversalConfig
from sightline.models.universal_transformer import UniversalTransformerConfig
from sightline.models.writer import Loss
from sightline.nn.thinking import AdaptiveConfig, FixedRepeatsConfig, PonderingConfig
from sightline.tasks.configs.classify import ClassifyConfig
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig
from sightline.vocabulary import END, PADDING, START

pytestmark = pytest.mark.unchecked_shapes

THINKING = {
    "fixed": FixedRepeatsConfig(2),
    "act": AdaptiveConfig(cost=0.3, most=4),
    "ponder": PonderingConfig(cost=0.3, most=4, prior=0.4),
}
READER = UniversalConfig(size=16, heads=2, feed_forward=24, dropout=0.0)
WRITER = UniversalTransformerConfig(size=16, heads=2, feed_forward=24, decoder_repeats=3, dropout=0.0)
LENGTHS = (6, 2, 4)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def words(count=30):
    drawn = torch.randint(8, count, (len(LENGTHS), max(LENGTHS)))
    return drawn.masked_fill(torch.arange(max(LENGTHS)) >= torch.tensor(LENGTHS).unsqueeze(1), 0)


def labeller(kind, objective="one_label", **options):
    model = build_labeller(objective, replace(READER, thinking=THINKING[kind], **options).build(30), 3)
    return model.double()


# --- Models


@pytest.mark.parametrize("pooling", ["attention", "first", "mean"])
@pytest.mark.parametrize("kind", THINKING)
def test_texts_together_have_the_scores_of_each(kind, pooling):
    model, texts = labeller(kind, pooling=pooling).eval(), words()
    together = model.scores(Texts(texts))
    for row, length in enumerate(LENGTHS):
        alone = model.scores(Texts(texts[row : row + 1, :length]))
        torch.testing.assert_close(together[row : row + 1], alone)


def test_embeddings_and_pooling_are_those_of_the_encoder():
    ours = replace(READER, parts=2).build(30)
    theirs = EncoderConfig(size=16, heads=2, feed_forward=24, layers=1, parts=2, dropout=0.0).build(30)
    shared = {"embedding.weight", "parts.weight"} | {name for name in theirs.state_dict() if name.startswith("pool.")}
    assert shared <= set(ours.state_dict())
    assert all(ours.state_dict()[name].shape == theirs.state_dict()[name].shape for name in shared)
    assert type(ours).pooled is type(theirs).pooled


def test_the_ponder_cost_is_a_named_part_of_the_loss():
    for kind in ("act", "ponder"):
        model, texts, gold = labeller(kind).train(), Texts(words()), torch.tensor([0, 2, 1])
        loss = model.loss(texts, gold)
        assert loss.tokens == 3
        model.requires_grad_(False)
        read, thought = model.model.read(texts), model.model.think(texts)
        assert loss.parts["ponder"] == pytest.approx(float(read.cost.sum()))
        assert loss.measures["repeats"] == pytest.approx(float(read.repeats.sum()))
        by_hand = [thought.cost[row, :length].mean() for row, length in enumerate(LENGTHS)]
        torch.testing.assert_close(read.cost, torch.stack(by_hand))
        rest = float(loss.total.detach()) - loss.parts["ponder"]
        if kind == "act":
            assert rest == pytest.approx(float(F.cross_entropy(model.scores(texts), gold, reduction="sum")))
        else:  # the mean over the repeats of the losses
            expected = 0.0
            for number, (state,) in enumerate(thought.states):
                logits = model.output(model.model.pooled(state, texts))
                for row, length in enumerate(LENGTHS):
                    share = float(thought.weights[number, row, :length].mean())
                    expected += share * float(F.cross_entropy(logits[row], gold[row]))
            assert rest == pytest.approx(expected)


@pytest.mark.parametrize("objective", ["several_labels", "number", "tag_each"])
@pytest.mark.parametrize("kind", THINKING)
def test_every_head_adds_the_cost_in_training_only(objective, kind):
    model, texts = labeller(kind, objective), Texts(words())
    gold = {
        "several_labels": torch.rand(3, 3).round(),
        "number": torch.rand(3).double(),
        "tag_each": torch.randint(0, 3, (3, 6)).masked_fill(texts.words == 0, -1),
    }[objective]
    assert isinstance(model.eval().loss(texts, gold), Loss)
    loss = model.train().loss(texts, gold)
    if kind == "fixed":
        assert isinstance(loss, Loss)
        return
    assert loss.parts["ponder"] > 0
    loss.total.backward()
    halting = model.model.encoder.thinking.halt
    assert halting.weight.grad.abs().sum() > 0
    assert all(torch.isfinite(one.grad).all() for one in model.parameters() if one.grad is not None)


def test_the_prediction_of_pondernet_is_the_mean_of_the_logits():
    model, texts = labeller("ponder").eval(), Texts(words())
    read = model.model.read(texts)
    logits = torch.stack([model.output(one) for one in read.each])
    torch.testing.assert_close(model.scores(texts), (logits * read.weights.unsqueeze(-1)).sum(dim=0))


@pytest.mark.parametrize("kind", THINKING)
def test_one_word_at_a_time_is_all_at_once(kind):
    model = replace(WRITER, thinking=THINKING[kind]).build(30, 30).double().eval()
    source, target = words(), torch.cat([torch.full((3, 1), START), torch.randint(8, 30, (3, 5))], dim=1)
    whole = torch.log_softmax(model.logits(source, target), dim=-1)
    step, state = model.searching(source)
    for place in range(6):
        log_probs, state = step(target[:, place], state)
        torch.testing.assert_close(log_probs, whole[:, place])
    keys = [layer.past.keys for layer in state.layers]  # each repeat has a past of its own
    assert len(keys) == 3
    assert not torch.equal(keys[0], keys[1])
    alone = torch.log_softmax(model.logits(source[1:2, :2], target[1:2]), dim=-1)
    torch.testing.assert_close(whole[1:2], alone)


def test_a_translator_pays_for_its_source():
    source = words()
    target = torch.tensor([[START, 9, 8, END], [START, 9, END, 0], [START, 11, 12, END]])
    for kind in ("act", "ponder"):
        model = replace(WRITER, thinking=THINKING[kind]).build(30, 30).double()
        model.requires_grad_(False)
        plain, loss = model.eval().loss(source, target), model.train().loss(source, target)
        thought = model.think(source)
        each = torch.stack([thought.cost[row, :length].mean() for row, length in enumerate(LENGTHS)])
        expected = float((each * torch.tensor([3, 2, 3])).sum())
        assert isinstance(plain, Loss)
        assert plain.tokens == loss.tokens == 8
        assert loss.parts == {"ponder": pytest.approx(expected)}
        assert float(loss.total - plain.total) == pytest.approx(expected)
        repeats = torch.stack([thought.repeats[row, :length].mean() for row, length in enumerate(LENGTHS)])
        assert loss.measures["repeats"] == pytest.approx(float((repeats * torch.tensor([3, 2, 3])).sum()))


def test_no_fast_path_is_taken(monkeypatch):
    def never(*_):
        raise AssertionError("a fast path was taken")

    monkeypatch.setattr(encoders, "encode_unpadded", never)
    monkeypatch.setattr(unpadded, "encode_unpadded", never)
    for name in ("fast", "OneTokenDecoder", "PackedEncoder"):
        monkeypatch.setattr(transformer_search, name, never)
    writer, reader = WRITER.build(30, 30).eval().requires_grad_(False), labeller("fixed").eval()
    calls = []
    for module in (reader.model.encoder.layer, writer.encoder.layer, writer.decoder):
        module.register_forward_hook(lambda module, *_: calls.append(type(module).__name__))
    reader.scores(Texts(words()))
    step, state = writer.searching(words())
    step(torch.full((3,), START), state)
    assert calls == ["EncoderLayer"] * (2 + 4) + ["DecoderLayer"] * 3


def test_repeats_are_counted_where_something_decides():
    texts = Texts(words())
    for kind in THINKING:
        model = labeller(kind).eval().requires_grad_(False)
        with watch_repeats(model) as seen:
            model.scores(texts)
            model.scores(Texts(texts.words[:1]))
        if kind == "fixed":
            assert seen.mean is None
            continue
        repeats = model.model.think(texts).repeats
        total = repeats.sum() + repeats[0].sum()
        assert seen.mean == pytest.approx(float(total / (sum(LENGTHS) + LENGTHS[0])), rel=1e-5)
        assert not model.model.encoder.thinking._forward_hooks


def test_configurations_survive_json():
    for config, family in ((READER, TextModelConfig), (WRITER, TextToTextConfig)):
        for thinking in THINKING.values():
            own = replace(config, thinking=thinking)
            assert family.from_json(json.loads(own.dumps())) == own
    for kind in (UniversalConfig, UniversalTransformerConfig):
        with pytest.raises(ValueError, match="size is 18; it must be even and divide into 4 heads"):
            kind(size=18)


def test_exports_refuse_in_one_sentence(tmp_path):
    model = WRITER.build(30, 30)
    with pytest.raises(UserError, match="no ONNX graphs"):
        write_onnx(model, tmp_path)
    with pytest.raises(UserError, match="runs a stack of layers once, and this run's model repeats one"):
        write_ctranslate2(model, tmp_path)
    with pytest.raises(UserError, match="no model from text to text that repeats one layer"):
        write_huggingface(model, None, None, tmp_path)


# --- Runs


def training(steps, rate):
    return TrainingConfig(learning_rate=rate, warmup=10, steps=steps, validate_every=steps // 2, averaged=1)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """What a bag of words cannot learn: which of two words comes first."""
    path = tmp_path_factory.mktemp("classifier")
    thinking = AdaptiveConfig(most=3)
    config = ClassifyConfig(
        model=replace(READER, thinking=thinking),
        tokeniser=TokeniserConfig("words", vocab_size=60, lower=True, min_frequency=1),
        training=training(150, 0.015),
        batch_tokens=600,
        baselines=False,
    )
    run = sightline.train(ordered(500), path / "run", task="classify", config=config, progress=False)
    return run, path / "run"


def test_a_classifier_learns_and_logs_its_repeats(classifier):
    run, path = classifier
    evaluation = run.evaluate(ordered(60, seed=5))
    assert evaluation.values["accuracy"] > 85
    assert 1 <= evaluation.repeats <= 3
    assert evaluation.to_json()["repeats"] == evaluation.repeats
    metrics = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["loss_ponder"] > 0
    assert 1 <= metrics[0]["repeats"] <= 3
    assert metrics[0]["loss"] > metrics[0]["loss_ponder"]


def test_a_loaded_classifier_says_the_same(classifier):
    run, path = classifier
    texts = [text for text, _ in ordered(10, seed=7)]
    assert sightline.load(path).predict(texts) == run.predict(texts)
    with pytest.raises(UserError, match="of the kind universal, which transformers does not have"):
        export_run(path, "huggingface", path.parent / "out")


def test_a_view_has_a_map_of_each_repeat(classifier, tmp_path):
    run, _ = classifier
    explanation = run.explain("ab up cd down")
    names = [record.name for record in explanation.records if record.head == 0]
    repeats = [name for name in names if "@" in name]
    assert repeats[:2] == ["model.encoder.layer.attention@1", "model.encoder.layer.attention@2"][: len(repeats)]
    assert explanation.stacks[0].names == ("label",)
    (counted,) = explanation.of("repeats")
    assert (len(counted.rows), counted.columns.name) == (6, "repeat")
    assert len(counted.columns) <= 3
    np.testing.assert_allclose(counted.matrix().sum(axis=1), 1, atol=1e-5)
    assert any("decides how often to repeat" in note for note in explanation.notes)
    assert explanation.belief is not None
    for ending in (".html", ".json"):
        assert explanation.save(tmp_path / f"view{ending}").stat().st_size > 1000


def test_a_classifier_is_resumed_and_scored_by_commands(classifier, tmp_path):
    _, path = classifier
    shutil.copytree(path, tmp_path / "run")
    resumed = invoke("resume", "run", "--set", "steps=160", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert max(one["step"] for one in metrics) == 160
    rows = "".join(f"{text}\t{label}\n" for text, label in ordered(20, seed=9))
    (tmp_path / "test.tsv").write_text(f"text\tlabel\n{rows}")
    scored = invoke("evaluate", "run", "--data", "test.tsv", cwd=tmp_path)
    assert "repeats of a position on average" in scored.stdout, scored.stderr


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    draw = random.Random(0)
    texts = [" ".join(draw.choices("abcde", k=draw.randint(2, 5))) for _ in range(300)]
    config = TranslateConfig(
        model=replace(WRITER, thinking=PonderingConfig(most=3, prior=0.5), decoder_repeats=2),
        tokeniser=TokeniserConfig("words", vocab_size=60, min_frequency=1),
        training=training(30, 0.015),
        batch_tokens=600,
    )
    path = tmp_path_factory.mktemp("translator") / "run"
    return sightline.train([(text, text.upper()) for text in texts], path, config=config, progress=False), path


def test_greedy_is_a_beam_of_one(translator):
    run, _ = translator
    texts = ["a b c", "d e", "b b a c"]
    step_by_step = []
    with torch.inference_mode():
        for text in texts:
            source = run.input.collate(run.encode([text])[0])
            state, token, tokens = run.model.begin(source), START, []
            while token != END and len(tokens) < 12:
                log_probs, state = run.model.step(torch.tensor([token]), state)
                log_probs[:, [PADDING, START]] = -torch.inf
                token = int(log_probs.argmax())
                tokens.append(token)
            step_by_step.append(run.output.tokeniser.decode([[one for one in tokens if one != END]])[0])
    predictions = run.predict(texts, beam=1, max_length=12)
    assert [one.text for one in predictions] == step_by_step


def test_a_translator_is_viewed_and_counted(translator):
    run, path = translator
    evaluation = sightline.load(path).evaluate([("a b", "A B"), ("c d e", "C D E")])
    assert 1 <= evaluation.repeats <= 3
    assert evaluation.values["perplexity"] > 1
    explanation = run.explain("a b c", beam=1)
    cross = next(stack for stack in explanation.stacks if stack.kind == "cross")
    assert cross.names == ("decoder.cross@1", "decoder.cross@2")
    assert len(explanation.of("repeats")[0].rows) == 4
    rows = len(explanation.of("decoder.cross@1")[0].rows)
    assert {len(one.queries) for one in explanation.calculations} == {rows}
    with capture(run.model) as trace, torch.no_grad():
        run.model.logits(torch.tensor([[9, 10, END]]), torch.tensor([[START, 9]]))
    assert [name for name in trace.names if run.model.attends_to_source(name)] == list(cross.names)


def test_a_translation_is_aligned_by_any_repeat(translator):
    run, _ = translator
    assert list(attentions_to_source(run).heads) == ["decoder.cross@1", "decoder.cross@2"]
    tokenisers = run.input.tokeniser, run.output.tokeniser
    sides = [sides_of(one, [text], "spaces") for one, text in zip(tokenisers, ("a b", "A B"), strict=True)]
    selectors = [MapSelector(f"decoder.cross@{number}", None, 0) for number in (1, 2)]
    ((_, weights),) = weights_of_words(run, *sides, selectors)
    assert weights.shape == (2, 2, 2)
    assert (weights[0] != weights[1]).any()
