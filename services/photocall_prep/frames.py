"""Which of a file's frames, pages or pictures is read, and how much work it may be to get there."""

from __future__ import annotations

from PIL import Image

from photocall_prep.refusal import ImageRefused, Limits

# Formats whose header states how many frames there are; in the others they are counted by walking through the file.
_STATED = ("PNG", "WEBP", "AVIF", "HEIF", "MPO")
_ON_TOP_OF_EACH_OTHER = ("GIF", "PNG", "WEBP", "AVIF")  # to see one, all before it are decoded
_WORK_OF_THE_LARGEST = 16  # pixels decoded on the way, as multiples of the largest picture's; as scans of a JPEG


def check_frames(image: Image.Image, limits: Limits) -> int | None:
    """How many frames the header states; None where it does not. Raises ImageRefused for too many."""
    if image.format not in _STATED:
        return None
    frames = int(getattr(image, "n_frames", 1))
    if frames > limits.max_frames:
        raise ImageRefused("image_too_large", f"{frames} frames; at most {limits.max_frames} are accepted")
    return frames


def go_to(image: Image.Image, frame: int, frames: int | None, limits: Limits) -> None:
    """`frames`: as check_frames says. Raises ImageRefused for a frame that is not there or too far away, and what
    Pillow raises on damage.
    """
    if frames is not None and frame >= frames:
        raise no_such_frame(frame, frames)
    if frame >= limits.max_frames:
        raise ImageRefused("image_too_large", f"frame {frame}; at most {limits.max_frames} frames are accepted")
    width, height = image.size
    if image.format in _ON_TOP_OF_EACH_OTHER:
        work = (frame + 1) * width * height
        if work > _WORK_OF_THE_LARGEST * limits.max_pixels:
            reason = f"to see frame {frame}, {frame + 1} frames of {width}x{height} pixels must be decoded"
            raise ImageRefused("image_too_large", f"{reason}; at most {_WORK_OF_THE_LARGEST * limits.max_pixels}")
    try:
        image.seek(frame)
    except EOFError:
        raise no_such_frame(frame) from None


def no_such_frame(frame: int, frames: int | None = None) -> ImageRefused:
    """The refusal of a frame behind the last; `frames` is how many there are, where it is known."""
    there = "the file ends before it" if frames is None else f"the file has {frames}"
    return ImageRefused("image_view_unsupported", f"frame {frame} (from 0) or page {frame + 1} was asked for; {there}")
