"""Estimate the disk space of a build from a few tasks that are rolled out and measured."""

from ..collage import collage, episode_tiles
from ..datasets.run import Run
from ..images import codec, decode
from ..rollouts.loop import roll_out_tasks
from ..rollouts.plan import plan_tasks
from ..rollouts.scripted import ScriptedPolicy

_SAMPLE_TASKS = 4
_ROW_BYTES = 2500
"""Metadata, prompts and labels of one episode, compressed; measured on both puzzles."""


def estimate_bytes(run: Run, name: str) -> int:
    """Estimate the bytes of one environment's part of a store.

    Only embedded policies and environments are sampled; no model is called and no simulator started for an estimate.
    """
    env, settings = run.env(name), run.env(name).config
    if not settings.repeats_exactly:
        settings = type(settings)(horizon=settings.horizon)
    tasks = plan_tasks(env.type, settings, run.config.seed, min(_SAMPLE_TASKS, env.tasks))
    policy = run.policy()
    sampled = roll_out_tasks(
        env.type, settings, tasks, policy if policy.is_stand_in else ScriptedPolicy(), min(run.config.rollouts, 8)
    )
    frames = sum(len(frame.image) for task in sampled for frame in task.frames.values())
    collages = rows = 0
    for task in sampled:
        pixels = {key: decode(frame.image) for key, frame in task.frames.items()}
        for episode in task.episodes:
            rows += 1
            if episode.failed:
                # The collage and, at about a third of it, the panel.
                shown = [step.frame_id for step in episode.steps] + [episode.steps[-1].next_frame_id]
                inside = [[pixels[each] for each in step.inside_frame_ids or ()] for step in episode.steps]
                tiles = episode_tiles(env.type.profile.tiles, [pixels[frame_id] for frame_id in shown], inside)
                picture = collage(tiles.frames, tiles.labels)
                size = len(codec(task.frames[shown[0]].format).encode(picture))
                collages += size + size // 3
    # Frames are stored once in the store and once more in the whole-episode config.
    per_episode = (2 * frames + collages) / rows + _ROW_BYTES
    return int(per_episode * env.tasks * run.config.rollouts)
