"""Generate ``lanewarden/v1`` from the protos beside this file; with ``--check``, only say whether it is fresh."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent
PACKAGE = Path("lanewarden/v1")
TARGET = PROTOS.parent / PACKAGE


def generate(directory: Path) -> None:
    """Write the modules, their ``.pyi`` and the gRPC stubs below ``directory``; exits on a proto error."""
    include = [f"-I{PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]
    for pattern, plugins in (("*.proto", ("python", "pyi")), ("*_service.proto", ("grpc_python",))):
        sources = sorted(str(path) for path in (PROTOS / PACKAGE).glob(pattern))
        outputs = [f"--{plugin}_out={directory}" for plugin in plugins]
        if protoc.main(["protoc", *include, *outputs, *sources]) != 0:
            sys.exit("protoc failed; its messages are above")


def main(arguments: list[str]) -> None:
    """Compare with the committed files, and rewrite them unless ``--check`` is given."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        made = {path.name: path for path in (Path(scratch) / PACKAGE).iterdir()}
        kept = {path.name: path for path in TARGET.glob("*_pb2*")}
        stale = sorted(
            name
            for name in made.keys() | kept.keys()
            if name not in made or name not in kept or not filecmp.cmp(made[name], kept[name], shallow=False)
        )
        if "--check" in arguments:
            if stale:
                sys.exit(f"stale: {', '.join(stale)}; run `python protos/generate.py`")
            return
        for name in stale:
            (TARGET / name).unlink(missing_ok=True)
            if name in made:
                (TARGET / name).write_bytes(made[name].read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
