"""Pictures of attention. Sees plain records, never a model."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.view.animation import image_gif, replay_gif
    from sightline.view.charts import confusion_matrix, draw_curves, reliability
    from sightline.view.page import write_page
    from sightline.view.pictures import all_heads, all_layers, heat_map, heat_map_figure
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "view.animation": "image_gif replay_gif",
            "view.charts": "confusion_matrix draw_curves reliability",
            "view.page": "write_page",
            "view.pictures": "all_heads all_layers heat_map heat_map_figure",
        },
    )

__all__ = ["all_heads", "all_layers", "confusion_matrix", "draw_curves", "heat_map", "heat_map_figure", "image_gif"]
__all__ += ["reliability", "replay_gif", "write_page"]
