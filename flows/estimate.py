"""How much disk a build will take, measured rather than guessed: one small task is rolled out and weighed."""

from ..collage import collage, episode_tiles
from ..datasets.config import RunConfig, env_config, environment
from ..datasets.parts import make_policy
from ..images import decode, encode_jpeg, encode_png
from ..rollouts.loop import roll_out_tasks
from ..rollouts.plan import plan_tasks

_SAMPLE_TASKS = 4
_ROW_BYTES = 2500
"""Metadata, prompts and labels of one episode, compressed; measured on both puzzles."""


def estimate_bytes(config: RunConfig, env: str) -> int:
    """Estimate the bytes of one environment's part of a store.

    Only embedded policies and environments are sampled; no model is called and no simulator started for an estimate.
    """
    run = config.environments[env]
    env_type, settings = environment(env), env_config(env, run.settings)
    if not settings.repeats_exactly:
        settings = type(settings)(horizon=settings.horizon)
    tasks = plan_tasks(env_type, settings, config.seed, min(_SAMPLE_TASKS, run.tasks))
    policy = make_policy(config.policy)
    if not policy.is_stand_in:
        policy = make_policy(RunConfig.model_fields["policy"].default)
    sampled = roll_out_tasks(env_type, settings, tasks, policy, min(config.rollouts, 8))
    frames = sum(len(frame.image) for task in sampled for frame in task.frames.values())
    collages = rows = 0
    for task in sampled:
        pixels = {key: decode(frame.image) for key, frame in task.frames.items()}
        for episode in task.episodes:
            rows += 1
            if episode.failed:
                # The collage and, at about a third of it, the panel.
                shown = [step.frame_id for step in episode.steps] + [episode.steps[-1].next_frame_id]
                tiles = episode_tiles(env_type.profile.tiles, [pixels[frame_id] for frame_id in shown])
                picture = collage(tiles.frames, tiles.labels)
                lossy = task.frames[shown[0]].format == "jpeg"
                size = len(encode_jpeg(picture) if lossy else encode_png(picture))
                collages += size + size // 3
    # Frames are stored once in the store and once more in the whole-episode config.
    per_episode = (2 * frames + collages) / rows + _ROW_BYTES
    return int(per_episode * run.tasks * config.rollouts)
