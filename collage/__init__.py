"""Step-labelled collages and hindsight panels."""
