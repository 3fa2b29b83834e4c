"""Retries and time limit of the runs of deployments: settings of the worker, from its environment.

A deployment sets other values in ``work_pool.job_variables.env`` of ``prefect.yaml``.
"""

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ConfigError

VARIABLES = {"retries": "PIVOT_RUN_RETRIES", "retry_seconds": "PIVOT_RUN_RETRY_SECONDS", "hours": "PIVOT_RUN_HOURS"}
"""Environment variables by field."""


class Attempts(BaseModel):
    """Retries and time limit of a flow run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    retries: int = Field(2, ge=0, le=20)
    """Attempts after the first: in the same process after an error, in a new one after the process died."""
    retry_seconds: float = Field(60.0, ge=0, le=540)
    """Pause before an attempt after an error; shorter than the ten minutes after which a silent run is an alarm."""
    hours: float = Field(12.0, gt=0, le=24 * 365)
    """Time after which an attempt counts as hanging."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> "Attempts":
        """Read the values from environment variables; empty ones count as missing.

        Raises:
            ConfigError: a value is not a number, or out of bounds.
        """
        fields = {field: text for field, name in VARIABLES.items() if (text := variables.get(name, "").strip())}
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            name = VARIABLES[str(first["loc"][0])]
            raise ConfigError(f"{name}: found {first['input']!r}; {first['msg']}; set another value") from error


def attempts() -> Attempts:
    """Return the settings of this process.

    Raises:
        ConfigError: as :meth:`Attempts.of`.
    """
    return Attempts.of(os.environ)
