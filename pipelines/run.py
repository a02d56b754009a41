"""Runs a pipeline or a command, and turns whatever happens into one sentence and an exit code."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import EngineError, ShardwrightError


def run_pipeline(build: Callable[[Any], None], options: Any) -> Any:
    """Builds a pipeline with `build`, runs it and waits for it.

    Returns:
      Beam's result.

    Raises:
      ShardwrightError: the one that a worker raised, or an `EngineError` for any other failure.
    """
    import apache_beam as beam

    try:
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        result = pipeline.run()
        if getattr(result, "has_job", True):
            state = result.wait_until_finish()
            if state is not None and str(state) not in ("DONE", "UPDATED"):
                raise EngineError(f"The runner reports the state {state}; see its log.")
        return result
    except (KeyboardInterrupt, ShardwrightError):
        raise
    except Exception as error:
        raise as_shardwright_error(error) from error


def as_shardwright_error(error: BaseException) -> ShardwrightError:
    """Returns the error that an exception of the engine carries or stands for."""
    seen: BaseException | None = error
    while seen is not None:
        found = ShardwrightError.from_text(str(seen))
        if found:
            return found
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, MemoryError):
        return EngineError("The machine ran out of memory; use a larger one, then --resume.")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = (lines[-1] if lines else "")[:300]
    return EngineError(
        f"The engine failed with {type(error).__name__}: {text or 'no message'}; "
        "run again with --verbose for the whole story, and with --resume to go on."
    )


@contextlib.contextmanager
def quiet_engine(verbose: bool) -> Iterator[None]:
    """Keeps Beam's log lines and worker tracebacks off the screen unless they are wanted."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    names = ("apache_beam", "google", "urllib3", "root")
    loggers = [logging.getLogger(None if name == "root" else name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def exit_code_of(command: Callable[[], int], verbose: Callable[[], bool]) -> int:
    """Runs a command; prints what went wrong in one sentence and returns the exit code."""
    try:
        return command()
    except ShardwrightError as error:
        if verbose():
            traceback.print_exc()
        print(f"shardwright: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print(
            "shardwright: interrupted; run the same command with --resume to go on.",
            file=sys.stderr,
        )
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone
        return int(ExitCode.ENGINE)
    except OSError as error:
        if verbose():
            traceback.print_exc()
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"shardwright: {error.strerror or error}{where}; mend that and run again.",
            file=sys.stderr,
        )
        return int(ExitCode.ENGINE)
