"""An answer as the caller's own calibration has it, with what it was before beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from photocall.calibrating import corrected
from photocall.questions import Choice, Noul, Question, Score
from photocall.recalibration import Recalibration
from photocall_engine.readout import letter_answer


def recalibrated(question: Question, answer: Mapping[str, Any], calibration: Recalibration | None) -> Mapping[str, Any]:
    """The same answer where there is nothing to correct. An abstained one stays without confidence."""
    if calibration is None or not isinstance(question, Choice | Noul | Score):
        return answer
    correction = calibration.of(question.name, question.type)
    if correction is None:
        return answer
    if isinstance(question, Noul):
        raw = {"true": answer["noul"], "false": 1 - answer["noul"]}
    else:
        raw = dict(answer["probabilities"])
        correction = replace(correction, bias=0.0)  # the log odds of two; there is none of many
    found = {**answer, **letter_answer(question, corrected(list(raw.values()), correction))}
    if answer.get("answer_status") == "abstained" and "confidence" in found:
        found["confidence"] = 0.0
    return {**found, "calibration": calibration.id, "probabilities_raw": raw}
