"""Pictures of the gallery's pages, docs/gallery/SLUG.png, from a server that runs.

    ergodax gallery --no-browser --port 8000 &
    python tools/screenshots.py http://127.0.0.1:8000 [SLUG ...]

It needs the extras gallery and browser, Pillow, and Chromium.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from ergodax.gallery.pages import FIGURES

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"
PICTURE = ".vega-embed canvas"
PIXELS = "es => es.map(e => e.toDataURL()).join()"
MOST = 120_000  # bytes of a picture
WIDTH = 1200  # of the window; pictures are narrower, by the margins of the page
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def settle(page: Page) -> None:
    """Wait until the pictures stay as they are for a second."""
    page.locator(PICTURE).first.wait_for(timeout=120_000)
    last = ""
    while (now := page.locator(PICTURE).evaluate_all(PIXELS)) != last:
        last = now
        page.wait_for_timeout(1000)


def compressed(image: bytes) -> bytes:
    """The picture with few enough colours, and if need be smaller, to be below MOST bytes."""
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    for colours in (256, 128, 64, 32):
        out = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(out, "png", optimize=True)
        if out.tell() <= MOST:
            break
    return out.getvalue()


def main(address: str, slugs: list[str]) -> None:
    """Write the pictures of these figures, or of all."""
    FOLDER.mkdir(exist_ok=True)
    found = next(path for path in map(shutil.which, NAMES) if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        for figure in FIGURES:
            if slugs and figure.slug not in slugs:
                continue
            page = browser.new_page(viewport={"width": WIDTH, "height": 2400})
            page.goto(f"{address}/{figure.slug}/")
            settle(page)
            image = compressed(picture_with_controls(page))
            (FOLDER / f"{figure.slug}.png").write_bytes(image)
            print(f"{figure.slug}: {len(image):,} bytes")
            page.close()
        browser.close()


def picture_with_controls(page: Page) -> bytes:
    """From the first slider to the end of the last picture."""
    pictures = [picture.bounding_box() for picture in page.locator(PICTURE).all()]
    slider = page.get_by_role("slider").first.bounding_box()
    boxes = [box for box in pictures if box is not None]
    assert boxes and slider is not None
    left, top = min(box["x"] for box in boxes) - 10.0, slider["y"] - 30.0
    right = max(box["x"] + box["width"] for box in boxes) + 10.0
    end = max(box["y"] + box["height"] for box in boxes) + 10.0
    size = {"width": max(right - left, 900.0), "height": end - top}
    return page.screenshot(clip={"x": left, "y": top, **size})


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), sys.argv[2:])
