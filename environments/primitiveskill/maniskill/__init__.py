"""ManiSkill backend: a physics simulator in a child process."""
