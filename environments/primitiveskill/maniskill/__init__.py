"""The ManiSkill backend: a physics simulator in a process of its own."""
