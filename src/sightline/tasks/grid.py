"""Grid: a label for every cell of an image, or of a grid of features."""

from sightline.tasks.task import Column, Task, Variant

GRID = Task(
    name="grid",
    help="a label for every cell of an image and for its pixels: cracks, land cover, defects",
    data="a table with the columns image and mask, or a folder with images and masks in it",
    columns=(
        Column(
            "image",
            "the path of an image, or of a grid of features (.npy, height × width × numbers)",
            ("image_path", "image_file", "file_name", "filename", "file", "path"),
        ),
        Column(
            "mask",
            "the path of an image or array of the same height and width with a value for each class",
            ("mask_path", "mask_file", "segmentation", "labels", "label", "gold", "cells"),
        ),
    ),
    reader="sightline.data.grids:grid_cells",
    variants=(
        Variant(
            input="sightline.inputs.grid:GridInput",
            output="sightline.outputs.cells:CellsOutput",
            config="sightline.tasks.configs.grid:GridConfig",
            models={
                "at_once": {
                    "tiny": {},
                    "small": {"width": 32, "cell_size": 192, "rnn_size": 64, "rnn_layers": 2, "pixel_width": 32},
                    "base": {"width": 48, "cell_size": 384, "rnn_size": 128, "rnn_layers": 2, "pixel_width": 48},
                },
                "sequential": {
                    "tiny": {},
                    "small": {"width": 32, "cell_size": 192, "rnn_size": 64, "attn_num_hidden": 192, "pixel_width": 32},
                    "base": {"width": 48, "cell_size": 384, "rnn_size": 128, "attn_num_hidden": 384, "pixel_width": 48},
                },
                "single": {
                    "tiny": {},
                    "small": {"width": 32, "cell_size": 192, "pixel_width": 32},
                    "base": {"width": 48, "cell_size": 384, "pixel_width": 48},
                },
            },
            stored="grid",
            rates={"tiny": 2e-3, "small": 1e-3, "base": 5e-4},
        ),
    ),
    metrics=("f1", "average_precision", "accuracy", "pixel_f1"),
    rows="images",
    counted="cells",
    max_bad_share=0.05,
)
