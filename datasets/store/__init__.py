"""A store of episodes: its config, schema and tables, the stages that write them, and folders of finished nights."""
