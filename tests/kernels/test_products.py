"""Products with a large matrix: the same as PyTorch's own, however many rows there are."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from sightline.kernels import products
from sightline.kernels.products import MANY, STEP, VANISHING, WORTH, Product, filled_up

pytestmark = pytest.mark.fast

LARGE = (WORTH // 32, 32)


def matrix(shape=LARGE, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype), torch.randn(shape[0], dtype=dtype)


@pytest.mark.skipif(not products.supported(torch.ones(1, 1)), reason="this PyTorch has no oneDNN, or kernels are off")
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 63, 64, 65, 130])
@pytest.mark.parametrize("biased", [True, False])
def test_a_large_matrix_is_packed_and_gives_the_same(rows, biased):
    weight, bias = matrix()
    product, x = Product(weight, bias if biased else None), torch.randn(rows, LARGE[1])
    assert product.packed is not None
    found = product(x)
    assert found.shape == (rows, LARGE[0])
    torch.testing.assert_close(found, F.linear(x, weight, bias if biased else None), rtol=1e-5, atol=1e-4)


def test_the_other_way_round():
    """A view of a matrix, as the gradient of the features wants it, and rows that do not stand one behind the other."""
    weight, _ = matrix()
    x = torch.randn(6, LARGE[0])
    torch.testing.assert_close(Product(weight.t())(x[::2]), x[::2] @ weight, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("shape", "dtype"), [((8, 4), torch.float32), (LARGE, torch.float64), (LARGE, torch.bfloat16)])
def test_other_matrices_take_the_usual_way(shape, dtype):
    weight, bias = matrix(shape, dtype)
    product, x = Product(weight, bias), torch.randn(3, shape[1], dtype=dtype)
    assert product.packed is None
    assert torch.equal(product(x), F.linear(x, weight, bias))


def test_without_onednn_the_usual_way_is_taken(monkeypatch):
    monkeypatch.setattr(products, "_operations", lambda: ())
    weight, bias = matrix()
    product, x = Product(weight, bias), torch.randn(3, LARGE[1])
    assert product.packed is None
    assert torch.equal(product(x), F.linear(x, weight, bias))


@pytest.mark.skipif(not products.supported(torch.ones(1, 1)), reason="this PyTorch has no oneDNN, or kernels are off")
def test_a_small_matrix_is_packed_where_it_is_multiplied_often_by_many_rows(monkeypatch):
    weight, bias = matrix((40, 8))
    assert Product(weight, bias).packed is None
    product, other = Product(weight, bias, often=True), Product(weight.t(), often=True)
    taken, operations = [], products._operations()
    monkeypatch.setattr(
        products, "_operations", lambda: (operations[0], lambda *args: taken.append(1) or operations[1](*args))
    )
    for rows in (0, 1, MANY - 1, MANY, MANY + 3):
        x, y = torch.randn(rows, 8), torch.randn(rows, 40)
        torch.testing.assert_close(product(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(other(y), y @ weight, rtol=1e-5, atol=1e-5)
        assert len(taken) == (0 if rows < MANY else 2 * (rows - MANY) // 3 + 2)
    assert copy.deepcopy(product).packed is not None


@pytest.mark.parametrize("shape", [LARGE, (8, 4)])
@pytest.mark.parametrize("rows", [0, 1, 65])
def test_powers_are_those_of_e(shape, rows):
    """From just below where they are promised to where float32 ends."""
    weight, x = 0.3 * torch.randn(shape), torch.randn(rows, shape[1])
    logits = x.double() @ weight.double().t()
    for lowered in (VANISHING + float(logits.abs().max()) if rows else 0.0, 60.0, 75.0):
        found = Product(weight, torch.full((shape[0],), -lowered)).powers(x)
        torch.testing.assert_close(found.double(), (logits - lowered).exp(), rtol=3e-5, atol=0.0)


def test_no_rows():
    weight, bias = matrix()
    assert Product(weight, bias)(torch.empty(0, LARGE[1])).shape == (0, LARGE[0])


def test_it_learns_nothing_and_can_be_copied():
    weight, bias = matrix()
    product, x = Product(weight.requires_grad_(), bias), torch.randn(3, LARGE[1])
    found = product(x)
    assert not found.requires_grad
    assert not product(x.clone().requires_grad_()).requires_grad
    for other in (copy.deepcopy(product), pickle.loads(pickle.dumps(product))):
        torch.testing.assert_close(other(x), found)


@given(rows=st.integers(1, 10_000))
def test_rows_are_filled_up_to_one_of_a_few_numbers(rows):
    filled = filled_up(rows)
    assert rows <= filled < max(2 * rows, rows + STEP)
    assert filled_up(filled) == filled
    assert filled % STEP == 0 or filled in (1, 2, 4, 8, 16, 32)
