"""A corridor with a pit: walk left or right to the goal. The smallest complete extension of PIVOT, and its example."""
