"""llama.cpp's server on a free port of this host, until standard input ends; prints its address.

    python -m rlvr.export.llama_cpp_server FILE CONTEXT PARALLEL THREADS

A process of its own: a crash of llama.cpp must not end an export without a message.
"""

from __future__ import annotations

import sys

import xllamacpp


def serve(file: str, context: str, parallel: str, threads: str) -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.n_ctx, parameters.n_parallel = int(context), int(parallel)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(threads)
    parameters.warmup = parameters.ui = False
    parameters.verbosity = 0  # errors
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(*sys.argv[1:])
