"""The data check before every training: the tensors that the model gets, and their supervised tokens.

Every record is collated as in training. The number of its image tokens must fit the size of its picture, its target and
end token must be the only supervised tokens, and no text may contain a special token, such as a picture's placeholder.
A level in both splits is refused; levels are compared in canonical form, whatever their task ids.
"""

from dataclasses import dataclass, field

from ...core.errors import PivotError, TrainingError
from ...datasets.store.config import environment
from ..encode import IGNORED, Batch, Encoder, Reply, image_tokens
from .samples import Sample, TrainingData

REDUCED = 0.9
"""Share of the area that the processor's resizing must keep; pictures below it are counted as scaled down."""


@dataclass
class SplitReport:
    """Counts of the records of one split."""

    records: int = 0
    picture_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens of the prompt's text and chat template."""
    target_tokens: int = 0
    """Tokens of the targets, with end tokens."""
    longest: int = 0
    longest_id: str = ""
    reduced: int = 0
    """Number of pictures that the processor scales down."""
    environments: dict[str, int] = field(default_factory=dict)


@dataclass
class DataReport:
    """Result of the data check."""

    train: SplitReport
    validation: SplitReport
    example: "Example"


@dataclass(frozen=True)
class Example:
    """A collated record, decoded from the tensors that the model gets."""

    episode_id: str
    prompt: str
    """The prompt, with the run of image tokens as one word."""
    target: str
    """The supervised tokens."""


def check_data(data: TrainingData, encoder: Encoder, max_length: int) -> DataReport:
    """Check every record of both splits.

    Raises:
        TrainingError: a record cannot be trained on, or a level is in both splits; the message names file and row.
    """
    special = encoder.special_tokens()
    levels: dict[tuple[str, str], str] = {}
    episodes: dict[str, str] = {}
    sides, example = [], None
    for number, samples in enumerate((data.train, data.validation)):
        split = SplitReport()
        for sample in iter(samples):
            _check_levels(sample, levels, first_side=number == 0)
            if (earlier := episodes.setdefault(sample.episode_id, sample.where)) != sample.where:
                raise TrainingError(
                    f"{sample.where}: found episode {sample.episode_id} a second time, first in {earlier}, expected "
                    "every record once; remove one of the two"
                )
            batch = _checked_batch(sample, encoder, special, max_length, split)
            if example is None:
                example = _decoded(sample, batch, encoder)
        sides.append(split)
    if example is None:
        raise TrainingError(f"{data.source} holds no record, expected some; build it again")
    return DataReport(sides[0], sides[1], example)


def _check_levels(sample: Sample, levels: dict[tuple[str, str], str], *, first_side: bool) -> None:
    try:
        canonical = environment(sample.env).canonical_state(sample.initial_state)
    except PivotError as error:
        raise TrainingError(f"{sample.where}: its level cannot be read ({error}); build the dataset again") from error
    if first_side:
        levels.setdefault((sample.env, canonical), sample.where)
    elif (sample.env, canonical) in levels:
        raise TrainingError(
            f"{sample.where}: found a level that is also in {levels[sample.env, canonical]}, expected no level in "
            "both splits; split by level: pivot relabel STORE --split task"
        )


def _checked_batch(
    sample: Sample, encoder: Encoder, special: frozenset[int], max_length: int, split: SplitReport
) -> Batch:
    texts = [part["text"] for message in sample.prompt for part in message["content"] if part["type"] == "text"]
    for what, text in (("target", sample.target), *(("prompt", text) for text in texts)):
        reserved = special.intersection(encoder.tokenizer(text, add_special_tokens=False)["input_ids"])
        if reserved:
            token = encoder.tokenizer.convert_ids_to_tokens(min(reserved))
            raise TrainingError(
                f"{sample.where}: the {what} holds the special token {token}, expected plain text; remove the record"
            )
    picture = sample.picture
    reply = encoder.reply_tokens(sample.target)
    try:
        batch = encoder.batch([Reply(sample.prompt, [picture], reply)])
    except ValueError as error:
        raise TrainingError(f"{sample.where}: the model's processor refuses the record: {error}") from error
    columns, rows = image_tokens(*picture.size, encoder.processor.image_processor)
    ids = batch["input_ids"][0]
    shown = int((ids == encoder.processor.image_token_id).sum())
    if shown != columns * rows:
        raise TrainingError(
            f"{sample.where}: found {shown} image tokens, expected {columns}x{rows} for a picture of "
            f"{picture.width}x{picture.height} pixels; this processor is not supported"
        )
    supervised = ids[batch["labels"][0] != IGNORED].tolist()
    begun = "" if encoder.closing is None else f"{encoder.closing}\n\n"
    if supervised != reply or encoder.tokenizer.decode(reply[:-1]) != begun + sample.target:
        raise TrainingError(
            f"{sample.where}: the supervised tokens decode to {encoder.tokenizer.decode(supervised)[:80]!r}, expected "
            "the target and its end token; use a model whose tokenizer preserves text"
        )
    length = len(ids)
    if length > max_length:
        raise TrainingError(
            f"{sample.where}: episode {sample.episode_id} has {length} tokens, expected at most {max_length}; raise "
            "--max-length, or build with smaller pictures (nothing is truncated)"
        )
    split.records += 1
    split.picture_tokens += shown
    split.target_tokens += len(reply)
    split.prompt_tokens += length - shown - len(reply)
    split.environments[sample.env] = split.environments.get(sample.env, 0) + 1
    grid = encoder.processor.image_processor
    area = columns * rows * (grid.patch_size * grid.merge_size) ** 2
    split.reduced += area < REDUCED * picture.width * picture.height
    if length > split.longest:
        split.longest, split.longest_id = length, sample.episode_id
    return batch


def _decoded(sample: Sample, batch: Batch, encoder: Encoder) -> Example:
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    image = encoder.processor.image_token_id
    count = ids.count(image)
    prompt = [
        each
        for place, each in enumerate(ids)
        if labels[place] == IGNORED and (each != image or ids[place - 1] != image)
    ]
    text = encoder.tokenizer.decode(prompt).replace(
        encoder.tokenizer.convert_ids_to_tokens(image), f"[{count} image tokens]"
    )
    target = encoder.tokenizer.decode([each for each in labels if each != IGNORED])
    return Example(sample.episode_id, text, target)
