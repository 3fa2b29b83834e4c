"""The rollback probe: retries of failures from the pivot step and from its neighbours."""
