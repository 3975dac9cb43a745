"""What is shown of machines: their slots, their repeats, and the evidence, of a copying machine that is set by hand."""

import io
import json
import re
from base64 import b64encode

import numpy as np
import pytest
import torch

import sightline
from chromium import choose
from server_samples import client_of
from sightline.explain.evidence import leave_one_out
from sightline.explain.explanation import Explanation
from sightline.explain.thinking import fixed_repeats, watch_repeats
from sightline.models.computer import NeuralComputerConfig
from sightline.models.recurrent_steps import RecurrentStepsConfig
from sightline.models.transformer_steps import TransformerStepsConfig, UniversalStepsConfig
from sightline.models.turing import TuringMachineConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.series import SeriesBatch, SeriesShape
from sightline.nn.thinking import AdaptiveConfig, FixedRepeatsConfig, PonderingConfig
from sightline.outputs.machine_explain import MachineSubject, NumbersSubject, explain_machine, read_without
from sightline.tasks.configs.sequence import SequenceConfig
from sightline.tasks.explain import ExplainOptions
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes
BITS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=np.float32)
BATCH = SeriesBatch(torch.from_numpy(BITS)[None], torch.tensor([3]))
SURE = 30.0
SLOTS = 16


@torch.no_grad()
def copier(bits=True, read_heads=2, **fields):
    """Writes vector k to slot k (the first slot is 0 and stays empty), and reads it at answer k with the first head.

    The other read heads stay at the first slot.
    """
    config = TuringMachineConfig(
        answers="after", controller="feed_forward", slots=SLOTS, width=3, size=4, read_heads=read_heads, **fields
    )
    model = config.build(SeriesShape((3,)), TargetShape(3, bits)).eval()
    for parameter in model.parameters():
        parameter.zero_()
    model.controller.weight[:, :4] = SURE * torch.eye(4)  # 0 or 1: the bits, then whether to answer
    model.content.bias[:3] = -SURE  # nothing is erased
    model.content.weight[3:, :3] = 3 * torch.eye(3)
    model.content.weight[3:, 3] = 1.5
    model.content.bias[3:] = -1.5  # bits are added as −1 and 1, nearly; while it answers, nothing is
    key = 3 + 1  # and its strength; then the gate, three shifts and the sharpness
    for heads in (model.read.head, model.write.head):
        heads.bias[..., key] = -SURE  # from the slot before, not by content
        heads.bias[..., key + 4] = SURE
    model.write.head.bias[..., key + 3] = SURE
    model.read.head.bias[..., key + 2] = SURE
    model.read.head.weight[0, 3, key + 3] = 2 * SURE
    model.output.weight[:, 4:7] = 5 * torch.eye(3)
    return model


def explained(model, count=3, batch=BATCH, **options):
    notes = []
    records, stacks, belief = explain_machine(model, batch, count, ExplainOptions(**options), 1000, notes)
    return Explanation("a", "sequence", "b", "c", tuple(records), tuple(stacks), belief=belief, notes=tuple(notes))


@pytest.fixture(scope="module")
def seen():
    return explained(copier())


def test_heads_are_one_stack_of_named_sides(seen):
    stack = seen.stacks[0]
    assert (stack.title, stack.names) == ("Slots of the memory", ("write", "read"))
    assert stack.layers == ("write heads", "read heads")
    assert [(one.name, one.head) for one in seen.records[:3]] == [("write", 0), ("read", 0), ("read", 1)]
    for record in seen.records[:3]:
        assert record.rows.texts == ("in 1", "in 2", "in 3", "out 1", "out 2", "out 3")
        assert (record.rows.name, record.columns.name, len(record.columns)) == ("step", "slot", SLOTS)
    assert seen.of("write")[0].matrix().argmax(axis=1)[:3].tolist() == [1, 2, 3]
    assert seen.of("read")[0].matrix().argmax(axis=1).tolist() == [0, 0, 0, 1, 2, 3]


def test_it_copies():
    made = copier().generate(BATCH, most=3, least=3)
    np.testing.assert_array_equal(made.values[0].round(), BITS)


def test_hiding_costs_where_the_vector_is(seen):
    costs = seen.of("hiding")[0]
    assert costs.rows.texts == ("out 1", "out 2", "out 3")
    own = costs.matrix()[range(3), [1, 2, 3]]
    # Of three bits with logits of ±l, a slot of zeros leaves a half each.
    logit = 5 * np.tanh(1.5)
    np.testing.assert_allclose(own, 3 * (np.log(2) - np.log1p(np.exp(-logit))), rtol=1e-3)
    rest = costs.matrix().copy()
    rest[range(3), [1, 2, 3]] = 0
    assert rest.max() < 1e-3
    removal = next(one for one in seen.belief.findings if one.key == "removal")
    assert removal.value > 1 > 0.1 > removal.reference
    assert "at the same step in 3 of 3 answers, at the step before in 0 of 2" in seen.notes[0]
    assert "read heads, every row" in seen.belief.about


def test_a_head_is_cut(seen):
    ones = int(BITS.sum())  # a logit of 0 is no 1
    assert f"without read head 1, {ones} of 9 bits change" in seen.notes
    assert "without read head 2, 0 of 9 bits change" in seen.notes
    assert {(one.name, one.head) for one in seen.belief.heads} == {("write", 0), ("read", 0), ("read", 1)}


def test_numbers_change_by_deviations():
    model = copier(bits=False)
    notes = explained(model).notes
    change = 5 * np.tanh(1.5)
    assert f"without read head 1, the numbers change by {change:.2f} deviations" in notes
    schedule = model.schedule(BATCH, torch.tensor([3]))
    costs = leave_one_out(NumbersSubject(model, schedule, 3), range(3))
    np.testing.assert_allclose(costs[range(3), [1, 2, 3]], change**2, rtol=1e-3)


def test_gradients_find_the_same_slots():
    model = copier()
    subject = MachineSubject(model, model.schedule(BATCH, torch.tensor([3])), 3)
    assert subject.gradient_times_input([0, 1, 2]).abs().argmax(dim=1).tolist() == [1, 2, 3]


@pytest.mark.parametrize("first", ["constant", "learned", "random", "computer"])
def test_nothing_hidden_is_what_the_machine_does(first):
    torch.manual_seed(0)
    sizes = {"answers": "after", "slots": 6, "width": 3, "size": 5, "read_heads": 2}
    config = NeuralComputerConfig(**sizes) if first == "computer" else TuringMachineConfig(**sizes, first_memory=first)
    model = config.build(SeriesShape((3,)), TargetShape(3, True)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    schedule = model.schedule(BATCH, torch.tensor([3]))
    with torch.no_grad():
        torch.manual_seed(1)
        plain = model.run(schedule).features
        torch.manual_seed(1)
        torch.testing.assert_close(read_without(model, schedule, torch.ones(1, 1, 1)), plain, rtol=1e-4, atol=1e-6)
    subject = MachineSubject(model, schedule, 3)
    hidden = leave_one_out(subject, range(3))
    np.testing.assert_array_equal(hidden, leave_one_out(subject, range(3)))  # the same first memory
    if first != "random":  # what is read before the first answer is used in it: hidden as well
        nothing = subject.log_probs(torch.zeros(1, 6, dtype=torch.bool))
        with torch.no_grad():
            for start, same in ((2, True), (3, False)):
                features = model.answered(
                    read_without(model, schedule, torch.zeros(1, 1, 1), start), schedule.starts, 3
                )
                assert torch.allclose(nothing, -model.errors(features, subject.true)) == same
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_neural_computer_has_the_same_maps():
    torch.manual_seed(0)
    config = NeuralComputerConfig(answers="after", slots=6, width=3, size=5, read_heads=2)
    made = explained(config.build(SeriesShape((3,)), TargetShape(3, True)).eval())
    assert [one.title for one in made.stacks] == ["Slots of the memory", "What hiding each slot costs each vector"]
    assert [one.unit for one in made.stacks] == ["weight", "nats"]
    assert {one.name for one in made.records} == {"write", "read", "hiding"}
    assert any(note.startswith("without read head 2, ") for note in made.notes)


def test_answers_at_each_frame():
    torch.manual_seed(0)
    config = TuringMachineConfig(answers="each", slots=6, width=3, size=5)
    made = explained(config.build(SeriesShape((3,)), TargetShape(3, True)).eval())
    assert made.records[0].rows.texts == ("out 1", "out 2", "out 3")
    assert made.of("hiding")[0].matrix().shape == (3, 6)


THINKING = {"act": AdaptiveConfig(most=5), "ponder": PonderingConfig(most=5)}
MACHINES = {
    "lstm": lambda thinking: RecurrentStepsConfig(answers="after", size=8, thinking=thinking),
    "universal": lambda thinking: UniversalStepsConfig(
        answers="after", size=8, heads=2, feed_forward=8, thinking=thinking
    ),
}


def thinker(machine, thinking):
    torch.manual_seed(0)
    model = MACHINES[machine](thinking).build(SeriesShape((3,)), TargetShape(3, True)).eval()
    for name, parameter in model.named_parameters():
        if ".halt." in name:
            torch.nn.init.constant_(parameter, -1.0 if name.endswith("bias") else 0.0)  # several repeats
    return model


@pytest.mark.parametrize("thinking", THINKING)
@pytest.mark.parametrize("machine", MACHINES)
def test_repeats_are_a_map_and_are_fixed(machine, thinking):
    model = thinker(machine, THINKING[thinking])
    made = explained(model)
    (record,) = made.of("repeats")
    assert (record.rows.name, record.columns.name) == ("step", "repeat")
    np.testing.assert_allclose(record.matrix().sum(axis=1), 1, atol=1e-5)
    assert any("decides how often to repeat" in note for note in made.notes)
    assert re.search(
        r"the same number of times: once, \d of 9 bits change; 2 times, \d of 9 bits change", made.notes[-1]
    )
    assert ("which it does not use" in made.notes[0]) == (machine == "universal")
    schedule = model.schedule(BATCH, torch.tensor([3]))
    for repeats in (2, 3):
        other = thinker(machine, FixedRepeatsConfig(repeats))
        other.load_state_dict(model.state_dict(), strict=False)
        with torch.no_grad():
            with fixed_repeats(model, repeats):
                fixed = model.run(schedule).features
            torch.testing.assert_close(fixed, other.run(schedule).features)
            assert not torch.allclose(fixed, model.run(schedule).features)
    assert not any(module._forward_hooks for module in model.modules())


def test_attention_between_steps_has_steps_on_both_sides():
    torch.manual_seed(0)
    config = TransformerStepsConfig(answers="after", size=8, heads=2, feed_forward=8)
    made = explained(config.build(SeriesShape((3,)), TargetShape(3, True)).eval())
    (stack,) = made.stacks
    assert (stack.title, stack.kind, len(stack.names)) == ("From step to step", "self", 2)
    assert made.records[0].rows == made.records[0].columns
    with watch_repeats(torch.nn.Linear(1, 1)) as seen:
        pass
    assert seen.last is None


@torch.no_grad()
def test_one_step_has_repeats_and_no_map_of_itself():
    one = SeriesBatch(torch.randn(1, 1, 3), torch.tensor([1]))
    for thinking, titles in ((THINKING["act"], ["The weight of each repeat"]), (FixedRepeatsConfig(2), [])):
        torch.manual_seed(0)
        config = UniversalStepsConfig(answers="each", size=8, heads=2, feed_forward=8, thinking=thinking)
        notes = []
        model = config.build(SeriesShape((3,)), TargetShape(1, True)).eval()
        records, stacks, _ = explain_machine(model, one, 1, ExplainOptions(), 1000, notes)
        assert [stack.title for stack in stacks] == titles
        assert len(records) == len(titles)
        assert ("universal has one step, which attends to itself alone: there is no map" in notes) == (not titles)


def test_it_survives_json(seen):
    again = Explanation.from_json(json.loads(json.dumps(seen.to_json(), allow_nan=False)))
    assert again.stacks == seen.stacks
    assert (again.notes, again.belief) == (seen.notes, seen.belief)
    for one, other in zip(again.records, seen.records, strict=True):
        assert (one.rows, one.columns) == (other.rows, other.columns)
        np.testing.assert_allclose(one.matrix(), other.matrix(), rtol=1e-6)


@pytest.mark.parametrize("layout", ["alignment", "heads", "layers"])
def test_pictures_say_what_their_sides_are(seen, layout, tmp_path):
    drawn = seen.save(tmp_path / "map.svg", layout=layout).read_text()
    texts = re.findall(r">([^<>]+)</text>", drawn)
    assert "step" in texts
    shown = 4 if layout != "layers" else 7  # the write head goes on
    assert f"slot ({SLOTS - shown} more have no weight of 0.01)" in texts
    assert not {"written", "attended to"} & set(texts)
    named = {"alignment": "read heads, mean of 2 heads", "heads": "read heads", "layers": "write heads"}
    assert named[layout] in " ".join(texts)  # a title may have two lines
    if layout == "alignment":
        assert {"in 1", "out 3", "1", "4"} <= set(texts)  # slots are counted from 1


def test_slots_stay_where_half_of_them_are_used(seen, tmp_path):
    model = copier()
    batch = SeriesBatch(torch.ones(1, 8, 3), torch.tensor([8]))
    drawn = explained(model, 8, batch, measure=False).save(tmp_path / "map.svg").read_text()
    assert "slot" in re.findall(r">([^<>]+)</text>", drawn)
    assert seen.save(tmp_path / "film.gif").stat().st_size > 1000
    assert len(seen.of("read")[0].columns) == SLOTS  # data stays whole


def test_the_page_names_sides_and_layers(seen, visit):
    page = visit(seen)
    assert page.locator(".show > .name").inner_text() == "Slots of the memory, read heads, mean of 2 heads"
    choose(page, "Layer", "write heads")
    said = re.sub("[\u2068\u2069]", "", page.locator(".sentence").inner_text())
    assert said == "‘in 1’: ‘slot 2’ 1.00."
    assert "without read head 2, 0 of 9 bits change" in page.locator("body").inner_text()
    page.click("#tab-heads")
    page.wait_for_selector(".layer h3")
    assert page.locator(".layer h3").all_inner_texts() == ["Write heads", "Read heads"]


def test_a_server_explains_a_machine(tmp_path):
    config = SequenceConfig(
        model=TuringMachineConfig(size=8, slots=8, width=4),
        training=TrainingConfig(steps=1, validate_every=1, averaged=1),
    )
    draw, rows = np.random.default_rng(0), ["features\ttarget"]
    for number in range(12):  # less to make than made data
        np.save(tmp_path / f"{number}.npy", draw.integers(0, 2, (2 + number % 2, 3)).astype(np.float32))
        np.save(tmp_path / f"{number}-target.npy", draw.integers(0, 2, (2, 3)).astype(np.float32))
        rows.append(f"{number}.npy\t{number}-target.npy")
    (tmp_path / "data.tsv").write_text("\n".join(rows) + "\n")
    run = sightline.train(tmp_path / "data.tsv", tmp_path / "run", task="sequence", config=config)
    stream = io.BytesIO()
    np.save(stream, BITS)
    with client_of({"machine": run}) as client:
        asked = {"array": b64encode(stream.getvalue()).decode(), "measure": True}
        answer = client.post("/explain", json=asked)
        assert answer.status_code == 200, answer.text
    made = Explanation.from_json(answer.json())
    assert made.stacks[0].layers == ("write heads", "read heads")
    assert any("without read head 1" in note for note in made.notes)
