"""Pictures by URL: fetched here, in the prep room, at public addresses only, within bounds of size and time.

Every hop is checked as the first one was (photocall/addresses.py). What comes back is judged by its bytes: its content
type is not read.
"""

from __future__ import annotations

import time
from urllib.parse import urljoin

from photocall.addresses import BadUrl, RefusedAddress, Url, parse_url
from photocall.formats import FORMATS, picture_format, what_it_is
from photocall.outbound import Answer, AnswerTooLarge, Caller, OutboundError
from photocall_prep.refusal import ImageRefused

MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "photocall"}


class Fetcher:
    """Fetches pictures with a caller whose bounds are those of one picture, redirects included."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def fetch(self, text: str) -> bytes:
        """The bytes of the picture that a URL names. Raises ImageRefused."""
        until = time.monotonic() + self._caller.timeout_s
        for _ in range(MAX_REDIRECTS + 1):
            url = self._checked(text)
            answer = self._get(url, until)
            if answer.status not in _REDIRECTS:
                return _picture(answer)
            text = urljoin(str(url), answer.headers.get("location", ""))
        raise ImageRefused("image_unreachable", f"it redirects more than {MAX_REDIRECTS} times")

    def _checked(self, text: str) -> Url:
        try:
            return parse_url(text, plain_http=bool(self._caller.rules.allowed))
        except BadUrl as error:
            raise ImageRefused("image_url_refused", str(error)) from error

    def _get(self, url: Url, until: float) -> Answer:
        try:
            return self._caller.exchange("GET", url, _HEADERS, until=until)
        except RefusedAddress as error:
            raise ImageRefused("image_url_refused", f"{url.host} is not at a public address") from error
        except AnswerTooLarge as error:
            raise ImageRefused("image_too_large", f"{error}, as many as are accepted") from error
        except OutboundError as error:
            raise ImageRefused("image_unreachable", f"{url.host}: {error}") from error


def _picture(answer: Answer) -> bytes:
    if answer.status != 200:
        raise ImageRefused("image_unreachable", f"it was answered with status {answer.status}")
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise ImageRefused("image_unreachable", "it came compressed, which was not asked for")
    if not answer.body:
        raise ImageRefused("image_unreachable", "it was answered without a body")
    if picture_format(answer.body) is None:
        accepted = ", ".join(FORMATS).upper()
        raise ImageRefused("image_unsupported", f"it is {what_it_is(answer.body)}, not one of {accepted}")
    return answer.body
