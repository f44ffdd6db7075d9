"""Cards for notebooks: a job as its pictures beside its answers, each with bars for what is probable.

Plain HTML with its styles in it and no script; whatever a server, a model or a file name says is escaped. Colours are
the page's own, but for the bars, so that it reads in a dark notebook as in a light one.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from photocall.client.answer import Answer
from photocall.client.answers import Answers, BoxAnswer, NumberAnswer, ScoreAnswer, TextAnswer
from photocall.client.pictures import Image
from photocall.client.thumbnail import caption, thumbnail

if TYPE_CHECKING:
    from photocall.client.batch_flows import Batch
    from photocall.client.shown import Job

BARS, FEWEST = 6, 3  # of one question
LEAST = 0.001  # a probability that gets a bar beyond these
PICTURES = 4
_BAR = "#4c8bf5"
_OTHER = "#9aa7b8"
_BOX = "#ff4d6d"
_CARD = (
    "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;max-width:860px;padding:12px;"
    "border:1px solid rgba(128,128,128,.35);border-radius:8px;font:14px/1.4 system-ui,sans-serif"
)
_QUIET = "opacity:.7;font-size:12px"


def job_card(job: Job) -> str:
    """A job: with its pictures and answers, or how it stands."""
    if not job.succeeded:
        return f'<div style="{_CARD}"><div>{_pictures(job.images, [])}</div><div>{progress_line(job)}</div></div>'
    answers = job.answers
    boxes = [answer for answer in answers.values() if isinstance(answer, BoxAnswer) and answer.answered]
    left = _pictures(job.images, boxes)
    return f'<div style="{_CARD}">{left}<div style="flex:1 1 320px">{answers_table(answers)}</div></div>'


def answers_table(answers: Answers) -> str:
    """The answers alone, one under the other."""
    return "".join(_answer(answer) for answer in answers.values())


def progress_line(job: Job) -> str:
    """How a job stands, in one line."""
    told = [html.escape(job.status)]
    queue = job.fields.get("queue")
    if isinstance(queue, Mapping):
        told.append(f"number {int(queue['position'])} in the queue")
        if queue.get("eta_s") is not None:
            told.append(f"about {float(queue['eta_s']):.0f} s")
    if job.error is not None:
        told.append(f"<code>{_text(job.error.get('code'))}</code> {_text(job.error.get('message'))}")
    return f'<span>{", ".join(told)}</span> <span style="{_QUIET}">{_text(job.id)}</span>'


def batch_card(batch: Batch) -> str:
    """How far a batch is."""
    counts = batch.counts
    total, done, failed = counts["total"], counts["completed"], counts["failed"]
    bar = _bar("answered", done / total if total else 0.0, _BAR, f"{done} of {total}")
    bar += _bar("failed", failed / total, _BOX, str(failed)) if failed else ""
    head = f'<b>{_text(batch.status)}</b> <span style="{_QUIET}">{_text(batch.id)}</span>'
    return f'<div style="{_CARD}"><div style="flex:1 1 320px">{head}{bar}</div></div>'


def _answer(answer: Answer) -> str:
    name = f'<span style="{_QUIET}">{_text(answer.name)}</span>'
    if answer.value is None:
        said = f"<i>{_text(answer.shown)}</i>"
        why = answer.fields.get("message")
        said += f' <span style="{_QUIET}">{_text(why)}</span>' if why else ""
    else:
        said = f"<b>{_text(answer.shown)}</b>"
    status = "" if answer.status in ("answered", "abstained", "refused", "not_asked") else f" ({_text(answer.status)})"
    return f'<div style="margin-bottom:10px">{name}<div>{said}{status}</div>{_bars(answer)}</div>'


def _bars(answer: Answer) -> str:
    """What is probable, the likeliest first; a scale in its own order."""
    found = answer.probabilities
    if isinstance(answer, ScoreAnswer):
        labels = [(_short(level), p) for level, p in zip(answer.legend, found.values(), strict=False)]
    else:
        ranked = sorted(found.items(), key=lambda item: -item[1])
        labels = [item for i, item in enumerate(ranked) if i < FEWEST or item[1] >= LEAST]
    best = max(found.values(), default=0.0)
    lines = [_bar(label, p, _BAR if p == best else _OTHER, f"{p:.1%}") for label, p in labels[:BARS]]
    if answer.cannot_tell is not None:
        lines.append(_bar("cannot tell", answer.cannot_tell, _OTHER, f"{answer.cannot_tell:.1%}"))
    if isinstance(answer, BoxAnswer) and (there := answer.fields.get("presence")) is not None:
        lines.append(_bar("there at all", float(there), _BAR, f"{float(there):.1%}"))
    if (more := len(found) - min(BARS, len(labels))) > 0:
        lines.append(f'<div style="{_QUIET}">and {more} more</div>')
    if isinstance(answer, NumberAnswer):
        low, high = answer.interval
        lines.append(f'<div style="{_QUIET}">nine in ten between {_text(low)} and {_text(high)}</div>')
    if isinstance(answer, TextAnswer) and answer.truncated:
        lines.append(f'<div style="{_QUIET}">cut off</div>')
    return "".join(lines)


def _bar(label: str, share: float, colour: str, told: str) -> str:
    width = 100 * min(1.0, max(0.0, share))
    round_ = "height:9px;border-radius:5px"
    cell = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
    return (
        '<div style="display:flex;gap:8px;align-items:center;font-size:12px">'
        f'<span style="flex:0 0 110px;{cell}" title="{_text(label)}">{_text(label)}</span>'
        f'<span style="flex:1;{round_};background:rgba(128,128,128,.18)">'
        f'<span style="display:block;{round_};width:{width:.1f}%;background:{colour}"></span></span>'
        f'<span style="flex:0 0 64px;text-align:right">{_text(told)}</span></div>'
    )


def _pictures(images: Mapping[str, Image], boxes: list[BoxAnswer]) -> str:
    """The pictures with what they are called; boxes on the only one, since of several nothing says which is meant."""
    shown = [
        _picture(name, image, boxes if len(images) == 1 else []) for name, image in list(images.items())[:PICTURES]
    ]
    more = f'<div style="{_QUIET}">and {len(images) - PICTURES} more</div>' if len(images) > PICTURES else ""
    return f'<div style="flex:0 0 auto">{"".join(shown)}{more}</div>' if shown else ""


def _picture(name: str, image: Image, boxes: list[BoxAnswer]) -> str:
    url, called = thumbnail(image), caption(name, image)
    if url is None:
        return f'<div style="{_QUIET};padding:8px;border:1px dashed rgba(128,128,128,.5)">{called}</div>'
    drawn = "".join(_drawn(answer) for answer in boxes)
    inner = f'<img src="{url}" alt="{called}" style="display:block;max-width:300px;border-radius:6px">{drawn}'
    return f'<div style="position:relative;display:inline-block">{inner}</div><div style="{_QUIET}">{called}</div>'


def _drawn(answer: BoxAnswer) -> str:
    left, top, right, bottom = (100 * edge for edge in answer.box)
    place = f"left:{left:.2f}%;top:{top:.2f}%;width:{right - left:.2f}%;height:{bottom - top:.2f}%"
    return (
        f'<div title="{_text(answer.name)}" style="position:absolute;{place};box-sizing:border-box;'
        f'border:2px solid {_BOX};border-radius:3px"></div>'
    )


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _short(level: Any) -> str:
    return str(level)[:60]
