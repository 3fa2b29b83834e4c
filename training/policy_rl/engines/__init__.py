"""Engines that generate replies while a model is trained."""

from .hand_over import HandOver, Restart, SwapAdapters
from .in_process import InProcessBackend, InProcessOptions
from .servers import Servers
from .teacher import ServedTeacher
from .transfer import Transfer
from .vllm import PROBE_TURNS, Probe, ServedBackend, VllmEngine, open_engine

__all__ = [
    "PROBE_TURNS",
    "HandOver",
    "InProcessBackend",
    "InProcessOptions",
    "Probe",
    "Restart",
    "ServedBackend",
    "ServedTeacher",
    "Servers",
    "SwapAdapters",
    "Transfer",
    "VllmEngine",
    "open_engine",
]
