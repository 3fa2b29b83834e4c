"""PIVOT: find the step where a failed vision-language agent lost the task, prove it, and train on it."""
