"""Gymnasium environments with text levels and exact restore.

Importing this package registers the embedded environments with gymnasium without importing their modules:
``gymnasium.make("pivot.environments:pivot/Sokoban-v0")``.
"""

import gymnasium

# The environments enforce the turn budget themselves (`truncated`), so gymnasium's time limit is not set.
gymnasium.register(id="pivot/Sokoban-v0", entry_point="pivot.environments.sokoban:SokobanEnv")
gymnasium.register(id="pivot/FrozenLake-v0", entry_point="pivot.environments.frozenlake:FrozenLakeEnv")
gymnasium.register(id="pivot/Svg-v0", entry_point="pivot.environments.svg:SvgEnv")
gymnasium.register(id="pivot/Navigation-v0", entry_point="pivot.environments.navigation:NavigationEnv")
gymnasium.register(id="pivot/PrimitiveSkill-v0", entry_point="pivot.environments.primitiveskill:PrimitiveSkillEnv")
