"""Pictures of the gallery's pages, docs/gallery/SLUG.png: `python -m tools.screenshots [SLUG ...]`.

It needs the extras gallery and browser, Pillow, and Chromium.
"""

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from gallery import headless
from gallery.pages import FIGURES

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"
MOST = 120_000  # bytes of a picture
WINDOW = {"width": 1200, "height": 2400}  # pictures are narrower, by the margins of the page


def compressed(image: bytes) -> bytes:
    """The picture with few enough colours, and if need be smaller, to be below MOST bytes."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    for colours in (256, 128, 64, 32):
        out = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(out, "png", optimize=True)
        if out.tell() <= MOST:
            break
    return out.getvalue()


def main(slugs: list[str]) -> None:
    """Write the pictures of these figures, or of all."""
    FOLDER.mkdir(exist_ok=True)
    with headless.running() as address, headless.chromium() as browser:
        for figure in FIGURES:
            if slugs and figure.slug not in slugs:
                continue
            opened = headless.Page(browser, f"{address}/{figure.slug}/", WINDOW)
            opened.settled()
            image = compressed(picture_with_controls(opened.page))
            (FOLDER / f"{figure.slug}.png").write_bytes(image)
            print(f"{figure.slug}: {len(image):,} bytes")
            opened.page.close()


def picture_with_controls(page: Page) -> bytes:
    """From the first slider to the end of the last picture."""
    pictures = [picture.bounding_box() for picture in page.locator(headless.PICTURE).all()]
    slider = page.get_by_role("slider").first.bounding_box()
    boxes = [box for box in pictures if box is not None]
    assert boxes and slider is not None
    left, top = min(box["x"] for box in boxes) - 10.0, slider["y"] - 30.0
    right = max(box["x"] + box["width"] for box in boxes) + 10.0
    end = max(box["y"] + box["height"] for box in boxes) + 10.0
    size = {"width": max(right - left, 900.0), "height": end - top}
    return page.screenshot(clip={"x": left, "y": top, **size})


if __name__ == "__main__":
    main(sys.argv[1:])
