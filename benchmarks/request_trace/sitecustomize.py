"""Python runs this file at its start where its folder is on the path: a line for every request.

Of `benchmarks/processes.py --trace`: every request of Flower's processes to one another, and every
answer of a party, with its time and seconds, into a file per process under $PARLEY_TRACE.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import time
from typing import Any

FOLDER = os.environ.get("PARLEY_TRACE", "")


def note(kind: str, began: float) -> None:
    with open(f"{FOLDER}/{os.getpid()}", "a") as file:
        file.write(f"{began} {kind} {time.time() - began}\n")


def trace_requests(module: Any) -> None:
    send = module.ProtobufClient._unary_unary

    def traced(self: Any, **call: Any) -> Any:
        began = time.time()
        try:
            return send(self, **call)
        finally:
            note(call["path"].rsplit("/", 1)[-1], began)

    module.ProtobufClient._unary_unary = traced


def trace_answers(module: Any) -> None:
    answer = module.answer

    def traced(request: bytes, folder: Any) -> Any:
        began = time.time()
        try:
            return answer(request, folder)
        finally:
            from parley.client.contract.protocol import decode_frame

            note(f"answer:{decode_frame(request).kind}", began)

    module.answer = traced


TRACED = {"flwr.supercore.protobuf.client": trace_requests, "parley.client.app": trace_answers}


class Finder(importlib.abc.MetaPathFinder):
    """Finds what is traced, once, and wraps it when it has been loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """None, but for what is traced."""
        trace = TRACED.pop(name, None)
        spec = None if trace is None else importlib.util.find_spec(name)
        if trace is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_trace(module: Any) -> None:
            load(module)
            trace(module)

        spec.loader.exec_module = load_and_trace  # type: ignore[method-assign]
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())
