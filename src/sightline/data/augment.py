"""Changes of features in training, so that a model sees each sound in many forms; never at prediction."""

import numpy as np

FREQUENCIES, FRAMES = 27 / 80, 100  # the widest masks of the policy LD: of the bands, and frames


def spec_augment(
    values: np.ndarray,
    draw: np.random.Generator,
    fill: float | np.ndarray = 0.0,
    *,
    frequency_masks: int = 2,
    time_masks: int = 2,
    frequency_share: float = FREQUENCIES,
    most_frames: int = FRAMES,
    share: float = 0.2,
) -> np.ndarray:
    """A copy of T × D features with some bands and some stretches of time set to ``fill`` (SpecAugment, Park et al.
    2019, without its warping of time).

    Widths are drawn evenly, from none to ``frequency_share`` of the bands, and to ``most_frames`` and ``share`` of the
    frames. What people get wrong: 0 says nothing only where the features have a mean of 0 (``fill`` is the mean, of
    each band if it is an array), and 100 frames are the whole of a one-second word, so that the widths must follow the
    length.
    """
    if values.ndim != 2:
        raise ValueError(f"values has shape {values.shape}; expected frames × bands")
    for name, part in (("share", share), ("frequency_share", frequency_share)):
        if not 0 <= part < 1:
            raise ValueError(f"{name} is {part}; it must be at least 0 and below 1")
    if time_masks * share >= 1:
        raise ValueError(f"{time_masks} masks of time of a share of {share} each can hide all frames; take fewer")
    frames, bands = values.shape
    masked = values.copy()
    fills = np.broadcast_to(np.asarray(fill, values.dtype), (bands,))
    for _ in range(frequency_masks):
        width = int(draw.integers(0, int(frequency_share * bands) + 1))
        start = int(draw.integers(0, bands - width + 1))
        masked[:, start : start + width] = fills[start : start + width]
    for _ in range(time_masks):
        width = int(draw.integers(0, min(most_frames, int(share * frames)) + 1))
        start = int(draw.integers(0, frames - width + 1))
        masked[start : start + width] = fills
    return masked


def stretch(values: np.ndarray, factor: float) -> np.ndarray:
    """T × D features at another speed, above 1 faster, by linear interpolation along time: speed perturbation for
    arrays that have no sound (a sound itself: `sightline.data.resampling.change_speed`)."""
    if not 0.1 <= factor <= 10:
        raise ValueError(f"factor is {factor}; it must be at least 0.1 and at most 10")
    frames = len(values)
    if not frames:
        return values.copy()
    count = max(1, round(frames / factor))
    places = np.linspace(0, frames - 1, count)
    before = np.minimum(places.astype(np.int64), max(0, frames - 2))
    weight = (places - before).astype(values.dtype)[:, None]
    after = np.minimum(before + 1, frames - 1)
    return values[before] * (1 - weight) + values[after] * weight
