"""The stand-in's player of SVG: the target document with faults, some of them fixed or added in later turns.

An episode gives every element of the target a number; with a fault level p, the elements below p are dropped, shifted,
resized or recoloured. A later submission lowers p (better), raises it (worse), or keeps it (the same document, or one
with a tiny change). Everything else is noise: incomplete markup, replies without a document, bad format. A reply is a
function of ids alone, so earlier turns are recomputed from their seeds instead of being remembered. The target is
untrusted text: it is searched by patterns of linear time.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from pydantic import Field

from ...core.data import load_data
from ...core.errors import ConfigError
from ...core.identity import derive_seed
from ..turns import Player, PlayerHabits, Reply, Turn, bell, pick, uniforms

_SHAPE = re.compile(r"<(?:path|circle|ellipse|rect|line|polyline|polygon|use)\b[^<>]*/>")
_COLOUR = re.compile(r'\b(fill|stroke)="#[0-9a-fA-F]{3,8}"')
_VIEW = re.compile(r'viewBox="\s*(-?[\d.]+)[\s,]+(-?[\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)')
_TEXTS = load_data(__file__, "player.yaml")


class SvgHabits(PlayerHabits):
    """Habits of the stand-in in SVG. Rates are probabilities per turn unless stated otherwise."""

    faults: float = Field(default=0.5, ge=0, le=1)
    """Mean share of faulty elements in a first draft."""
    spread: float = Field(default=0.12, ge=0)
    """Standard deviation of that share: over targets, and once more over the rollouts of a target."""
    exact: float = Field(default=0.0005, ge=0, le=1)
    """Chance of submitting the target itself; two turns make about 0.1 % of success, the paper's untrained rate."""
    better: float = Field(default=0.38, ge=0, le=1)
    """Share of later turns that fix faults."""
    worse: float = Field(default=0.27, ge=0, le=1)
    """Share of later turns that add faults."""
    hair: float = Field(default=0.1, ge=0, le=1)
    """Share of later turns with a tiny change; the remaining turns submit the same document again."""
    broken: float = Field(default=0.08, ge=0, le=1)
    """Share of documents that cannot be rendered."""
    empty: float = Field(default=0.06, ge=0, le=1)
    """Share of replies without a document."""
    no_think: float = Field(default=0.02, ge=0, le=1)
    """Share of replies whose document comes without a thought."""
    fenced: float = Field(default=0.05, ge=0, le=1)
    """Share of documents in a Markdown fence, which the grammar accepts."""
    baffled: float = Field(default=0.009, ge=0, le=1)
    """Share of targets for which no rollout submits a document: their eight returns agree."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """The submission of a turn before noise: its fault level and kind."""

    faults: float
    nudge: int
    """Number of tiny shifts of the drawing."""
    kind: str


@dataclass(frozen=True, slots=True)
class _Target:
    """A target document, split at its elements."""

    text: str
    spans: tuple[tuple[int, int], ...]
    start: int
    """Index at which the content of the root element begins."""
    stop: int
    """Index at which the content of the root element ends."""
    left: float
    top: float
    size: float
    """Longer side of the view box."""


class SvgPlayer(Player):
    """Imperfect draughtsman; see the module docstring."""

    config_type: ClassVar[type[PlayerHabits]] = SvgHabits
    settings: SvgHabits

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            ConfigError: the level holds no target document.
        """
        habits, tag = self.settings, turn.env.profile.answer_tag
        target = _target_of(turn.task.initial_state)
        draws = uniforms(turn.seed)
        draft = self._draft(turn)
        thought = f"{pick(_TEXTS['looking'], draws[0])} {pick(_TEXTS['planning'][draft.kind], draws[1])}"
        level = uniforms(derive_seed("svg target", turn.task.initial_state))
        if level[0] < habits.baffled:
            return Reply(f"<think>{thought}</think>I cannot tell what this is.")
        noise = draws[2]
        document = target.text if draws[3] < habits.exact else _draw(target, turn.episode_id, draft)
        if noise < habits.empty:
            return Reply(pick(_TEXTS["badly"], draws[4]).format(tag=tag, thought=thought, document=document))
        if noise < habits.empty + habits.broken:
            document = _break(document, draws[4], draws[5])
        elif noise < habits.empty + habits.broken + habits.no_think:
            return Reply(f"{thought}\n<{tag}>{document}</{tag}>")
        if draws[6] < habits.fenced:
            document = f"```svg\n{document}\n```"
        return Reply(f"<think>{thought}</think><{tag}>{document}</{tag}>")

    def _draft(self, turn: Turn) -> _Draft:
        """Recompute the plan of the episode up to this turn."""
        habits = self.settings
        level = bell(uniforms(derive_seed("svg difficulty", turn.task.initial_state)))
        form = bell(uniforms(derive_seed(turn.episode_id, "form")))
        draft = _Draft(_share(habits.faults + habits.spread * (level + form)), 0, "draft")
        for t in range(1, turn.t + 1):
            draft = self._next(draft, uniforms(derive_seed(turn.episode_id, t)))
        return draft

    def _next(self, draft: _Draft, draws: Sequence[float]) -> _Draft:
        habits, choice, step = self.settings, draws[7], 0.15 + 0.35 * draws[8]
        if choice < habits.better:
            return _Draft(_share(draft.faults * (1 - 2 * step)), draft.nudge, "better")
        if choice < habits.better + habits.worse:
            return _Draft(_share(draft.faults + step), draft.nudge, "worse")
        if choice < habits.better + habits.worse + habits.hair:
            return _Draft(draft.faults, draft.nudge + 1, "hair")
        return _Draft(draft.faults, draft.nudge, "same")


def _share(value: float) -> float:
    return min(0.95, max(0.02, value))


@lru_cache(maxsize=16)
def _target_of(state: str) -> _Target:
    try:
        level = json.loads(state)
    except ValueError:
        level = None
    text = level.get("target") if isinstance(level, dict) else None
    if not isinstance(text, str):
        raise ConfigError(f"the scripted policy finds no target document in the svg level {state[:40]!r}")
    root = text.find("<svg")
    start, stop = text.find(">", root) + 1, text.rfind("</svg>")
    if root < 0 or stop < start:
        start = stop = len(text)
    defined = text.find("</defs>", start, stop)
    # Elements in definitions are not rendered in place.
    matches = tuple(match.span() for match in _SHAPE.finditer(text, max(start, defined), stop))
    view = _VIEW.search(text[root:start])
    left, top, width, height = map(float, view.groups()) if view else (0.0, 0.0, 100.0, 100.0)
    return _Target(text, matches, start, stop, left, top, max(width, height))


def _draw(target: _Target, episode: str, draft: _Draft) -> str:
    """Return the target with the faults of a draft; never the exact target, since everything is shifted a little."""
    fates = [uniforms(derive_seed(episode, "element", number)) for number in range(len(target.spans))]
    pieces, at = [target.text[: target.start]], target.start
    slip = uniforms(derive_seed(episode, "slip"))
    away = 0.003 + 0.006 * slip[0] + 0.0008 * draft.nudge
    pieces.append(f'<g transform="translate({_number(away * target.size)} {_number(away * slip[1] * target.size)})">')
    worst = min(range(len(fates)), key=lambda number: fates[number][0], default=None)
    for number, (start, stop) in enumerate(target.spans):
        pieces.append(target.text[at:start])
        element, fate = target.text[start:stop], fates[number]
        faulty = fate[0] < draft.faults or number == worst
        pieces.append(_spoil(element, target, fate) if faulty else element)
        at = stop
    pieces += [target.text[at : target.stop], "</g>", target.text[target.stop :]]
    return "".join(pieces)


def _spoil(element: str, target: _Target, fate: Sequence[float]) -> str:
    """Return the element with its fault: removed, moved, resized or recoloured."""
    if fate[1] < 0.35:
        return ""
    if fate[1] < 0.6 and _COLOUR.search(element):
        paint = pick(_TEXTS["paints"], fate[2])
        return _COLOUR.sub(lambda match: f'{match[1]}="{paint}"', element)
    if fate[1] < 0.8:
        x, y = (_number((fate[at] - 0.5) * 0.4 * target.size) for at in (2, 3))
        return f'<g transform="translate({x} {y})">{element}</g>'
    scale = 0.5 + 0.9 * fate[2]
    x, y = (_number((corner + target.size / 2) * (1 - scale)) for corner in (target.left, target.top))
    return f'<g transform="translate({x} {y}) scale({_number(scale)})">{element}</g>'


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _break(document: str, kind: float, place: float) -> str:
    """Return a document that cannot be rendered: cut off, or with an error in its markup."""
    root = document.find(">") + 1
    if kind < 0.5:
        return document[: root + int((len(document) - root - len("</svg>")) * place)]
    broken = (
        document.replace("</g>", "", 1),
        document.replace('="', "=", 1),
        document.replace("</svg>", "</svg"),
        document[:root] + "<shape & more/>" + document[root:],
    )
    return pick(broken, place)
