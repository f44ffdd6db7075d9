"""What lies behind the things, and what a camera does to the whole: textures first, blur, noise and JPEG last."""

from __future__ import annotations

import io
import random
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Rgb = tuple[int, int, int]
COLORS: dict[str, Rgb] = {
    "red": (212, 36, 40),
    "orange": (245, 132, 28),
    "yellow": (250, 214, 40),
    "green": (44, 158, 68),
    "blue": (36, 88, 212),
    "purple": (128, 54, 172),
    "pink": (246, 146, 192),
    "brown": (122, 74, 36),
    "black": (22, 22, 24),
    "white": (246, 246, 244),
    "gray": (130, 131, 134),
}
BACKGROUNDS = ("plain", "gradient", "mottled", "stripes", "clutter", "haze", "checker")
_TONES: tuple[Rgb, ...] = (
    (236, 232, 222),
    (214, 224, 232),
    (200, 210, 196),
    (228, 214, 204),
    (176, 188, 200),
    (150, 146, 132),
    (96, 104, 112),
    (60, 66, 74),
    (40, 52, 60),
    (70, 58, 52),
    (190, 200, 220),
    (250, 250, 250),
    (222, 206, 160),
    (110, 132, 120),
    (34, 34, 38),
)


def distance(a: Rgb, b: Rgb) -> float:
    """How far two colours are apart; green weighs most, as for an eye."""
    return float(((a[0] - b[0]) ** 2 * 0.8 + (a[1] - b[1]) ** 2 * 1.3 + (a[2] - b[2]) ** 2 * 0.9) ** 0.5)


def lightness(color: Rgb) -> float:
    """0 black to 255 white, as an eye weighs it."""
    return 0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2]


def shade(rng: random.Random, color: Rgb, spread: int) -> Rgb:
    """The same colour, a little lighter, darker or off."""
    common = rng.randint(-spread, spread)
    r, g, b = (min(255, max(0, c + common + rng.randint(-spread // 3, spread // 3))) for c in color)
    return r, g, b


def paint(rng: random.Random, kind: str, width: int, height: int) -> tuple[Image.Image, list[Rgb]]:
    """A background and the colours that it is made of, from which things must stand out."""
    base = shade(rng, rng.choice(_TONES), 14)
    near = shade(rng, base, 22)
    if kind == "plain":
        return Image.new("RGB", (width, height), base), [base]
    if kind in ("gradient", "haze"):
        ends = [base, shade(rng, base, 44)] if kind == "gradient" else [base, near, shade(rng, base, 30), base]
        small = Image.new("RGB", (2, 2) if kind == "gradient" else (4, 3))
        small.putdata([rng.choice(ends) for _ in range(small.width * small.height)])
        return small.resize((width, height), Image.Resampling.BICUBIC), ends
    if kind == "mottled":
        cells = (max(2, width // rng.randint(14, 60)), max(2, height // rng.randint(14, 60)))
        low, high = np.asarray(base, np.float32), np.asarray(near, np.float32)
        weights = np.random.default_rng(rng.getrandbits(32)).random((cells[1], cells[0], 1), np.float32)
        small = Image.fromarray((low + (high - low) * weights).astype(np.uint8))
        return small.resize((width, height), Image.Resampling.BILINEAR), [base, near]
    image = Image.new("RGB", (width, height), base)
    draw = ImageDraw.Draw(image)
    if kind == "stripes":
        step, slope = rng.randint(14, 60), rng.choice((0, 0, height // 2, -height // 2))
        upright = rng.random() < 0.5
        for at in range(-height, width + height, 2 * step):
            line = [(at, 0), (at + slope, height)] if upright else [(0, at), (width, at + slope)]
            draw.line(line, fill=near, width=step)
    elif kind == "checker":
        step = rng.randint(24, 70)
        for y in range(0, height, step):
            for x in range((y // step % 2) * step, width, 2 * step):
                draw.rectangle([x, y, x + step - 1, y + step - 1], fill=near)
    else:
        for _ in range(rng.randint(10, 36)):
            x, y = rng.randint(-40, width), rng.randint(-40, height)
            w, h = rng.randint(8, width // 3), rng.randint(8, height // 3)
            fill, form = shade(rng, base, 26), rng.random()
            if form < 0.4:
                draw.line([(x, y), (x + w, y + h)], fill=fill, width=rng.randint(1, 6))
            elif form < 0.7:
                draw.rectangle([x, y, x + w, y + h // 2], outline=fill, width=rng.randint(1, 5))
            else:
                draw.ellipse([x, y, x + w // 2, y + w // 2], fill=fill)
        return image, [base, shade(rng, base, 0)]
    return image, [base, near]


@lru_cache(maxsize=4)
def _grain(side: int) -> NDArray[np.int16]:
    """Unit-free Gaussian grain, made once; pictures take a random window of it."""
    return (np.random.default_rng(side).standard_normal((side, side, 3)) * 16).astype(np.int16)


def photograph(rng: random.Random, image: Image.Image, strength: float) -> Image.Image:
    """Lighting, blur, grain and JPEG in random measure; `strength` 0 leaves the picture as it is drawn."""
    if rng.random() < 0.5 * strength:
        gain, lift = 1 + rng.uniform(-0.18, 0.12), rng.uniform(-14, 14)
        image = image.point([min(255, max(0, round(gain * v + lift))) for v in range(256)] * 3)
    if rng.random() < 0.3 * strength:
        image = image.filter(ImageFilter.BoxBlur(rng.uniform(0.2, 0.9)))
    if rng.random() < 0.35 * strength:
        grain = _grain(2048)
        x, y = rng.randrange(2048 - min(2047, image.width)), rng.randrange(2048 - min(2047, image.height))
        window = grain[y : y + image.height, x : x + image.width]
        if window.shape[:2] == (image.height, image.width):
            pixels = np.asarray(image, np.int16) + (window >> rng.choice((0, 1, 2)))
            image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if rng.random() < 0.3 * strength:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=rng.randint(40, 92))
        image = Image.open(buffer).convert("RGB")
    return image
