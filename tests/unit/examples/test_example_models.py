"""The models of examples/jobs compute what they say: gradients, data, state."""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import convnet
import digits
import ensemble
import kmeans
import mlp
import softmax
from digits import Floats
from scratch import Scratch
from training import LossLog, Model, Training

OPTIONS = argparse.Namespace(
    seed=1, batch=32, rate=0.05, momentum=0.9, decay=1e-4, hidden=8, channels=2,
    members=3, pixels=0.6, clusters=20,
)  # fmt: skip

MODELS = [softmax.Softmax, mlp.Mlp, convnet.ConvNet, ensemble.Ensemble, kmeans.KMeans]


def test_the_digits_are_the_1797_of_the_origin_note() -> None:
    data = digits.load()
    assert data.x.shape == (1500, 64)
    assert data.x_test.shape == (297, 64)
    assert (data.x.min(), data.x.max()) == (0.0, 1.0)
    assert np.bincount(np.concatenate([data.y, data.y_test])).tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip


def test_the_loss_of_equal_scores_is_log_10() -> None:
    loss, gradient = digits.cross_entropy(np.zeros((4, 10)), np.arange(4))
    assert loss == pytest.approx(np.log(10))
    assert gradient.sum(axis=1) == pytest.approx(np.zeros(4))


def test_the_gradient_of_the_perceptron_is_its_slope() -> None:
    model = mlp.Mlp(OPTIONS)
    x, y = model.data.batch(np.random.default_rng(7), 16, Scratch())
    gradient = model.gradient(x, y)[1].copy()
    parameters = model.arrays()["parameters"]
    for index in np.random.default_rng(7).integers(0, len(parameters), 20):
        assert gradient[index] == pytest.approx(
            slope(parameters, (index,), lambda: model.gradient(x, y)[0]), rel=1e-4, abs=1e-7
        )


def test_the_gradient_of_the_convolution_is_its_slope() -> None:
    model = convnet.ConvNet(OPTIONS)
    rng = np.random.default_rng(7)
    x, y = digits.load().batch(rng, 16, Scratch())
    _, slopes = model.gradient(x, y)
    for name, gradient in slopes.items():
        layer = model.arrays()[name]
        for _ in range(8):
            index = tuple(int(rng.integers(0, size)) for size in layer.shape)
            assert gradient[index] == pytest.approx(
                slope(layer, index, lambda: model.gradient(x, y)[0]), rel=1e-4, abs=1e-7
            )


def slope(values: Floats, index: tuple[int, ...], loss: Callable[[], float]) -> float:
    """Central difference of `loss` over one value."""
    kept = values[index]
    values[index] = kept + 1e-6
    above = loss()
    values[index] = kept - 1e-6
    below = loss()
    values[index] = kept
    return (above - below) / 2e-6


def test_col2im_is_the_transpose_of_im2col() -> None:
    rng = np.random.default_rng(3)
    images, patches = rng.normal(size=(2, 8, 8, 3)), rng.normal(size=(2, 6, 6, 27))
    there = float(np.vdot(convnet.im2col(images, np.empty_like(patches)), patches))
    back = float(np.vdot(images, convnet.col2im(patches, np.empty_like(images))))
    assert there == pytest.approx(back)


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_learns(kind: type[Model]) -> None:
    model = kind(OPTIONS)  # type: ignore[call-arg]  # the protocol names no constructor
    losses = [model.train_step() for _ in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert model.accuracy() > 0.3


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_goes_on_from_its_packed_state_to_the_bit(
    kind: type[Model], tmp_path: Path
) -> None:
    with (
        Training(kind(OPTIONS), tmp_path / "one") as one,  # type: ignore[call-arg]
        Training(kind(OPTIONS), None) as two,  # type: ignore[call-arg]
    ):
        for _ in range(5):
            one.train_step()
        two.unpack(one.pack())
        assert two.step == 5
        assert [one.train_step() for _ in range(5)] == [two.train_step() for _ in range(5)]
        for name, array in one.model.arrays().items():
            assert array.tobytes() == two.model.arrays()[name].tobytes()


def test_the_loss_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    log = LossLog(tmp_path / "loss.jsonl")
    log.append(1, 0.1)
    kept = log.size
    log.append(2, 0.2)
    log.close()
    again = LossLog(tmp_path / "loss.jsonl")
    again.cut(kept)
    again.append(2, 1 / 3)
    again.close()
    assert (tmp_path / "loss.jsonl").read_text().splitlines() == [
        '{"step": 1, "loss": 0.1}',
        '{"step": 2, "loss": 0.3333333333333333}',
    ]


def test_a_loss_log_that_is_too_short_is_refused(tmp_path: Path) -> None:
    log = LossLog(tmp_path / "loss.jsonl")
    with pytest.raises(ValueError, match="the checkpoint knows 10"):
        log.cut(10)
    log.close()
