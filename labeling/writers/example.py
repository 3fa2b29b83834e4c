"""The failures of the pre-flight check of a writer: a box of Sokoban that is pushed against the wall above it."""

from ...core.images import encode_png, frame_id
from ...environments.sokoban import SokobanEnv
from ...rollouts.policies.example import EPISODE, ROOM
from ...solvers.base import Verdict
from ...solvers.sokoban import SokobanSolver
from ..base import GuidanceRequest
from ..episode import FailedEpisode
from ..label import guidance_request

LOST = ("down", "right", "up", "up")
ENDS = (
    ("left", "left", "down", "down", "right"),
    ("right", "right", "down", "left", "down"),
    ("left", "down", "left", "down", "up"),
)
"""The actions after it. A model may fail at one of them by chance."""


def example_request(number: int) -> GuidanceRequest:
    """Play an episode, that of ``ENDS[number]``, and return what is asked about it."""
    actions = LOST + ENDS[number]
    env = SokobanEnv.from_settings({})
    frame, _ = env.reset(options={"state": ROOM})
    frames, shown, rewards, infos = {frame_id(frame): encode_png(frame)}, [frame_id(frame)], [], []
    for action in actions:
        frame, reward, _, _, info = env.step(env.encode_action(action))
        frames[frame_id(frame)] = encode_png(frame)
        shown.append(frame_id(frame))
        rewards.append(float(reward))
        infos.append({key: info[key] for key in env.profile.log_fields if key in info})
    episode = FailedEpisode(
        episode_id=EPISODE,
        env=env.profile.name,
        env_version=env.profile.version,
        env_config=env.config.decisive(),
        task_id=EPISODE,
        instruction="",
        initial_state=ROOM,
        horizon=env.config.horizon,
        actions=actions,
        payloads=[None] * len(actions),
        rewards=rewards,
        infos=infos,
        action_valid=[True] * len(actions),
        frame_ids=shown,
    )
    (verdict,) = SokobanSolver().certify([episode.case()])
    assert isinstance(verdict, Verdict)
    return guidance_request(env.profile, episode, verdict, frames)
