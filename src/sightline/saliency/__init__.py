"""Where an image draws the eye, without any training: the model of Itti, Koch and Niebur (1998).

`saliency` gives maps and scan paths of images, `scores` compares maps with where people looked.
"""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.saliency.competition import Fixation, PathConfig
    from sightline.saliency.looking import Saliency, look, make_ready, saliency
    from sightline.saliency.model import SaliencyConfig
    from sightline.saliency.scores import auc_judd, auc_shuffled, fixation_density, kl_divergence, nss, similarity
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "saliency.competition": "Fixation PathConfig",
            "saliency.looking": "Saliency look make_ready saliency",
            "saliency.model": "SaliencyConfig",
            "saliency.scores": "auc_judd auc_shuffled fixation_density kl_divergence nss similarity",
        },
    )

__all__ = ["Fixation", "PathConfig", "Saliency", "SaliencyConfig", "auc_judd", "auc_shuffled", "fixation_density"]
__all__ += ["kl_divergence", "look", "make_ready", "nss", "saliency", "similarity"]
