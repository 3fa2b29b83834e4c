"""``pivot view`` of a folder of episodes without a state: plain pages, made on request.

The folder may be from elsewhere: every text is escaped, and pictures are read below the folder alone.
"""

import html
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from ..errors import StoreError
from ..identity import canonical_json
from .base import LABELS, UNLABELLED, UnreadableError, read_below
from .episode import RecordedEpisode, RecordedTurn
from .folder import Row, folder_tables, outcome, places_of, read_episode, rows_of
from .stateless import FRAMES

_LISTED = 500
"""Episodes per page of the list."""
_STYLE = (
    "body{font:15px sans-serif;margin:2em;max-width:75em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left;vertical-align:top}"
    "tr.pivot{background:#fde4e0}img{max-width:16em}pre{white-space:pre-wrap;max-width:40em;margin:0}"
)


class FolderSite:
    """Answers the names of the pages of one folder."""

    def __init__(self, root: Path) -> None:
        """List the episodes.

        Raises:
            StoreError: labels cannot be read.
        """
        self._root = root
        self._places = list(places_of(root))
        self._labels, self._reasons = rows_of(root, LABELS), rows_of(root, UNLABELLED)

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self._places)

    def content(self, name: str) -> bytes | None:
        """Return a page, the style sheet or a picture; None where there is none.

        Raises:
            StoreError: an episode cannot be read.
        """
        for pattern, answer in self._answers:
            if match := re.fullmatch(pattern, name, re.ASCII):
                return answer(*match.groups())
        return None

    @cached_property
    def _answers(self) -> list[tuple[str, Callable[..., bytes | None]]]:
        return [
            (r"style\.css", _STYLE.encode),
            (r"index\.html", lambda: self._list("0")),
            (r"list/(\d{1,7})\.html", self._list),
            (r"episodes/(\d{1,9})\.html", self._page),
            (rf"({FRAMES}/[0-9a-f]{{64}}\.png)", self._stored),
        ]

    def _stored(self, name: str) -> bytes | None:
        try:
            return read_below(self._root, name)
        except UnreadableError:
            return None

    def _read(self, line: int) -> RecordedEpisode:
        try:
            return read_episode(self._root, self._places[line - 1])
        except UnreadableError as error:
            raise StoreError(f"{self._root}: {self._places[line - 1].label}: {error}") from error

    def _list(self, number: str) -> bytes | None:
        page, parts = int(number), list[str]()
        if page and page * _LISTED >= self.count:
            return None
        if page == 0:
            parts += [_table(title, names, rows) for title, names, rows in folder_tables(self._root) if rows]
        rows: list[list[str]] = []
        for line in range(page * _LISTED + 1, min(self.count, (page + 1) * _LISTED) + 1):
            episode, label = self._read(line), self._labels.get(line, {})
            link = f'<a href="/episodes/{line}.html">{line}</a>'
            facts = [episode.id, episode.env, outcome(episode), label.get("kind"), label.get("pivot_step")]
            rows.append([link, *map(_text, [*facts, label.get("failure_mode"), self._why(line)])])
        names = ["line", "id", "env", "outcome", "label", "pivot step", "mode", "no label because"]
        parts.append(_raw_table("Episodes", names, rows))
        pages = range(-(-self.count // _LISTED))
        parts += [f'<a href="/list/{each}.html">{each + 1}</a> ' for each in pages if len(pages) > 1]
        return _document(self._root.name, "".join(parts))

    def _why(self, line: int) -> str | None:
        return None if line in self._labels else self._reasons.get(line, {}).get("reason")

    def _page(self, number: str) -> bytes | None:
        line = int(number)
        if not 1 <= line <= self.count:
            return None
        episode, label = self._read(line), self._labels.get(line)
        row: Row = label or self._reasons.get(line, {})
        facts = {
            "id": episode.id,
            "environment": episode.env,
            "policy": episode.policy,
            "instruction": episode.instruction,
            "outcome": outcome(episode),
            "no state because": row.get("no_state"),
            "no label because": self._why(line),
            **({} if label is None else _facts_of(label)),
        }
        shown = [[_text(name), _text(value)] for name, value in facts.items() if value is not None]
        pivot = None if label is None else label.get("pivot_step")
        single = episode.left is None and len(episode.distances or ()) == len(episode.turns) + 1
        metres = episode.distances if single or episode.left is not None else None
        turns = [
            f"<tr{' class=pivot' if t == pivot else ''}><td>{t}</td><td>{_picture(turn.frame)}</td>"
            f"<td>{_text(_actions(turn))}</td><td>{_text(None if metres is None else metres[t + 1])}</td>"
            f"<td>{_text(turn.reward)}</td><td><pre>{_text(turn.response)}</pre></td></tr>"
            for t, turn in enumerate(episode.turns)
        ]
        names = ("turn", "before", "actions", "metres after", "reward", "reply")
        head = "".join(f"<th>{name}</th>" for name in names)
        beside = {"previous": line - 1, "next": line + 1}
        inside = [
            f'<a href="/episodes/{each}.html">{name}</a>' for name, each in beside.items() if 1 <= each <= self.count
        ]
        return _document(
            f"{self._root.name} line {line}",
            f'<a href="/index.html">all episodes</a> {" ".join(inside)}{_raw_table("", [], shown)}'
            f"<table><tr>{head}</tr>{''.join(turns)}</table>{_picture(episode.final_frame)}",
        )


def _facts_of(label: Row) -> Row:
    """Return what a label says, in words."""
    facts, by = label.get("certificate") or {}, label.get("by")
    bound = (
        f"needs {facts.get('before')} {facts.get('unit')} of {facts.get('budget_before')} left before the turn, "
        f"{facts.get('after')} of {facts.get('budget_after')} after it"
    )
    return {
        "label": label.get("kind"),
        "pivot step": label.get("pivot_step"),
        "failure mode": label.get("failure_mode"),
        "certificate": bound if facts else "none: an estimate",
        "probability": label.get("probability"),
        "made by": None if by is None else by if isinstance(by, str) else canonical_json(by),
    }


def _actions(turn: RecordedTurn) -> str:
    names = [each if isinstance(each, str | int) else each.name for each in turn.actions or ()]
    return ", ".join(map(str, names)) or "-"


def _picture(name: str | None) -> str:
    return "" if name is None else f'<img src="/{html.escape(name)}" alt="">'


def _text(value: object) -> str:
    return "" if value is None else html.escape(str(value))


def _table(title: str, names: list[str], rows: list[list[object]]) -> str:
    return _raw_table(title, names, [[_text(cell) for cell in row] for row in rows])


def _raw_table(title: str, names: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<h2>{_text(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _document(title: str, body: str) -> bytes:
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><link rel="stylesheet" href="/style.css">'
    return f"<!doctype html><html lang=en><head>{head}</head><body><h1>{_text(title)}</h1>{body}</body></html>".encode(
        errors="replace"
    )
