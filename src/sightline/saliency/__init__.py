"""Saliency without training: the model of Itti, Koch and Niebur (1998) of where people look in an image.

`saliency` gives maps and scan paths of images, `scores` compares maps with human fixations.
"""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.saliency.competition import Fixation, PathConfig
    from sightline.saliency.compute import Saliency, prepare_image, saliency, saliency_stream
    from sightline.saliency.model import SaliencyConfig
    from sightline.saliency.scores import auc_judd, auc_shuffled, fixation_density, kl_divergence, nss, similarity
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "saliency.competition": "Fixation PathConfig",
            "saliency.compute": "Saliency prepare_image saliency saliency_stream",
            "saliency.model": "SaliencyConfig",
            "saliency.scores": "auc_judd auc_shuffled fixation_density kl_divergence nss similarity",
        },
    )

__all__ = ["Fixation", "PathConfig", "Saliency", "SaliencyConfig", "auc_judd", "auc_shuffled", "fixation_density"]
__all__ += ["kl_divergence", "nss", "prepare_image", "saliency", "saliency_stream", "similarity"]
