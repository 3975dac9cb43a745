"""What `test_data_reading` and other tests share."""

from sightline.data.reading import pair_cells
from sightline.data.source import Source

ODD = "x\u2028y\x0bz\x85"  # Python's str.splitlines would break it

PAIRS = [("ein Haus", "a house"), ('er sagte "ja"', 'he said "yes"'), ("a, b", "c; d"), ("日本 語", ODD)]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def rows_of(folder, name, content, **options):
    return list(pair_cells(Source.of(written(folder, name, content), **options)))


def pairs_of(rows):
    rows = list(rows)
    assert [row for row in rows if row.problem] == []
    return [row.values for row in rows]
