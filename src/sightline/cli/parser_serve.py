"""The command that answers other programs and browsers: serve."""

from pathlib import Path
from typing import Annotated

import tyro


def serve(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")],
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    without_token: tyro.conf.FlagCreatePairsOff[bool] = False,
    allow_host: tuple[str, ...] = (),
    max_body: int = 1 << 20,
    max_texts: int = 64,
    max_characters: int = 2_000,
    max_beam: int = 16,
    max_tokens: int = 1_024,
    max_weights: int = 1_000_000,
    max_measured: int = 64,
    max_seconds: float = 60.0,
    max_reading: float = 10.0,
    max_stopping: float = 30.0,
    max_waiting: int = 256,
    max_connections: int = 1_024,
    max_images: int = 8,
    max_image_bytes: int = 16 << 20,
    max_pixels: int = 50_000_000,
    threads: int | None = None,
) -> None:
    """Serve runs: a page to type texts into, or drop images on, and see where a model looks, and an HTTP API.

    The page is at the address that is printed, the API's documentation at /docs. Requests that come at the same time
    are predicted together, and the answers are those of predict. Ctrl-C, or SIGTERM, stops it: no new requests are
    taken, those that were are answered.

    Args:
        runs: Run folders, or checkpoints of them (RUN/checkpoints/step-N); the page compares any two.
        port: The port to listen on; 0 takes a free one.
        host: The address to listen on. Any but this machine's own lets others in, and needs a token.
        token: What every request has to bring (Authorization: Bearer TOKEN); SIGHTLINE_TOKEN in the environment, which
            others on the machine cannot read, does the same.
        without_token: Let others in without a token: whoever reaches the address may use it.
        allow_host: More names that the server may be asked by, such as that of the machine.
        max_body: Bytes of a request.
        max_texts: Texts in a request.
        max_characters: Characters of a text.
        max_beam: How wide a beam may be asked for.
        max_tokens: How long an output may be asked for.
        max_weights: Weights of one explanation.
        max_measured: Tokens up to which it is measured whether to believe a map; predictions wait meanwhile.
        max_seconds: How long an answer may take.
        max_reading: Seconds a client may take to send a request.
        max_stopping: Seconds to go on answering after it is told to stop.
        max_waiting: Requests that may wait; more are refused with 503.
        max_connections: Clients that may be connected.
        max_images: Images in a request, for runs that read images.
        max_image_bytes: Bytes of all images of a request together, as files; a body may be that much larger.
        max_pixels: Pixels of an image.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.cli.serving import serve_command
    from sightline.serve.limits import Limits

    limits = Limits(
        body=max_body,
        texts=max_texts,
        characters=max_characters,
        beam=max_beam,
        tokens=max_tokens,
        weights=max_weights,
        measured=max_measured,
        seconds=max_seconds,
        reading=max_reading,
        stopping=max_stopping,
        waiting=max_waiting,
        connections=max_connections,
        images=max_images,
        image_bytes=max_image_bytes,
        pixels=max_pixels,
    )
    serve_command(runs, host, port, token, allow_host, without_token, limits, threads)
