"""Too few images to split: what is wrong with them is said first."""

import pytest

from captioning import tiny, written
from runs import trained_on
from sightline.errors import UserError


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("gone.png\ta star\n", r"1 of 1 images are bad \(.*gone\.png: there is no such file\)"),
        ("images/text.png\ta star\n", r"text\.png: it is no image"),
        ("images/0-0.png\ta star\nimages/0-1.png\t.\n", r"1 of 2 rows are bad \(.*no word in '\.'"),
        ("images/0-0.png\t\n", r"1 of 1 rows are bad \(.*no word in ''"),
        ("images/0-0.png\ta star\n", "found 1 image; expected two or more"),
    ],
)
def test_what_is_wrong_with_the_only_image_is_said_before_it_is_counted(rows, said, tmp_path):
    written(tmp_path, 2)
    (tmp_path / "images" / "text.png").write_text("no image", encoding="utf-8")
    table = tmp_path / "few.tsv"
    table.write_text("image\tcaption\n" + rows, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        trained_on("caption", table, tmp_path / "run", tiny())
    assert not (tmp_path / "run").exists()
