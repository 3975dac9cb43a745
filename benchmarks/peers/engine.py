"""CTranslate2 in fp32 on two threads, with the weights of the Marian model."""

from pathlib import Path
from typing import Any

import ctranslate2
from jobs import LONGEST
from shared import Timed, sentences, time_decoding

from sightline.vocabulary import END, SPELLINGS


def decode(job: dict[str, Any]) -> Timed:
    engine = ctranslate2.Translator(
        str(Path(job["data"]) / "ctranslate2"), compute_type="float32", intra_threads=job["threads"], inter_threads=1
    )
    _, tokens = sentences(job)
    names = [[str(token) for token in row] + [SPELLINGS[END]] for row in tokens]
    length = job["length"]
    options: dict[str, Any] = {"beam_size": job["beam"], "max_decoding_length": LONGEST + 1}
    if length:
        options |= {"min_decoding_length": length + 1, "max_decoding_length": length + 1}

    def search(rows: list[int]) -> list[list[int]]:
        found = engine.translate_batch([names[i] for i in rows], max_batch_size=0, **options)
        hypotheses = [one.hypotheses[0] for one in found]
        return [[int(name) for name in row if name not in SPELLINGS][: length or LONGEST] for row in hypotheses]

    return time_decoding(job, search)
