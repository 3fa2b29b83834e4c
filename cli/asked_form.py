"""Options of the commands that ask one model about many cases: those of the config, and those of a model server."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from ..core import plugins
from ..training.evaluation.config import AskedModel
from ..training.evaluation.run import backend_of
from .from_config import Form
from .model_flags import ModelFlags
from .values import Values, plain

Asked = TypeVar("Asked", bound=AskedModel)


class AskedForm(Form[Asked]):
    """The options of a config that names a model, and those of its server."""

    server = ModelFlags("analyzer")

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        yield from self.server.parameters()

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Override values by flags; see the base class."""
        super().put_flags(arguments, values)
        for key, (flag, value) in self.server.settings(arguments, "service").items():
            values.put(("service", key), value, flag)

    def resolve(self, values: Values) -> Asked:
        """Check the values, those of the server by the model's backend; see the base class."""
        config = super().resolve(values)
        if not config.service or not config.asks_a_model:
            return config
        kind = plugins.load("models", backend_of(config)).service_type
        settings = values.read(kind, ("service",), "service setting ")
        return config.model_copy(update={"service": {key: plain(getattr(settings, key)) for key in config.service}})
