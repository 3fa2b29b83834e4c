"""From a certified failure to an accepted training target: log, prompt, guidance, filters."""
