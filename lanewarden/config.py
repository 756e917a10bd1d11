"""Settings as a frozen dataclass: every field is a flag, an environment variable and a key of a TOML file.

::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RunnerConfig:
        state_dir: Path = setting(Path("state"), help="where everything is kept")
        stop_grace_seconds: float = setting(10.0, help="...", at_least=0, at_most=600)

        def conflicts(self) -> Iterator[str]:  # optional: sentences about settings that contradict each other
            ...

    config = load(RunnerConfig, service="lane_runner", argv=sys.argv[1:], environ=os.environ)

A flag (``--state-dir``) wins over the environment (``LANEWARDEN_LANE_RUNNER_STATE_DIR``), that over the file
(``state_dir``, from ``--config``), and that over the default.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

FILE_BYTES_MAX = 1024 * 1024


class ConfigInvalid(Exception):  # noqa: N818 - the user's mistake, not a crash
    """A setting cannot be used; the message is one line that names the source and the key."""


class _Dataclass(Protocol):
    __dataclass_fields__: typing.ClassVar[dict[str, dataclasses.Field[Any]]]


Config = TypeVar("Config", bound=_Dataclass)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    help: str
    at_least: float | None
    at_most: float | None
    choices: tuple[str, ...]
    env: str


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002 - as argparse calls it
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    env: str = "",
) -> Any:
    """A field of a config dataclass: ``str``, ``Path``, ``int``, ``float``, ``bool``, an enum, a tuple of
    ``str``, or one of these ``| None``. Without a default it must be given. ``env`` names a variable that is
    read besides the service's own, for settings that are not Lanewarden's alone.
    """
    facts = _Setting(help=help, at_least=at_least, at_most=at_most, choices=choices, env=env)
    return dataclasses.field(default=default, metadata={"setting": facts})


@dataclasses.dataclass(frozen=True, slots=True)
class _Key:
    """One setting with every name it goes by."""

    name: str
    kind: Any  # the type, without its ``| None``
    facts: _Setting
    default: Any
    flag: str
    variable: str


def load(config: type[Config], *, service: str, argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Read the settings of ``service``, or raise :class:`ConfigInvalid`. ``--help`` prints them all and exits."""
    keys = _keys(config, service)
    flags = vars(_parser(keys, service).parse_args(list(argv)))
    config_variable = _variable(service, "config")
    file = flags.pop("config", None) or environ.get(config_variable)
    values = _from_file(Path(file), keys) if file else {}
    values |= _from_environ(environ, keys)
    values |= {key.name: _convert(key, flags[key.name], key.flag) for key in keys if key.name in flags}
    missing = [key for key in keys if key.name not in values and key.default is dataclasses.MISSING]
    if missing:
        key = missing[0]
        raise ConfigInvalid(f"{key.name} is not set; give {key.flag} or {key.variable}")
    loaded = config(**values)
    conflicts: Iterator[str] = getattr(loaded, "conflicts", lambda: iter(()))()
    if problems := "; ".join(conflicts):
        raise ConfigInvalid(problems)
    return loaded


def _keys(config: type[_Dataclass], service: str) -> list[_Key]:
    hints = typing.get_type_hints(config)
    return [
        _Key(
            each.name,
            _plain(hints[each.name]),
            each.metadata["setting"],
            each.default,
            "--" + each.name.replace("_", "-"),
            _variable(service, each.name),
        )
        for each in dataclasses.fields(config)
    ]


def _variable(service: str, name: str) -> str:
    return f"LANEWARDEN_{service}_{name}".replace("-", "_").upper()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigInvalid(f"{message}; see --help")


def _parser(keys: Sequence[_Key], service: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=service.replace("_", "-") + "-svc",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        epilog="A flag wins over its environment variable, that over the file, that over the default.",
    )
    parser.add_argument("--config", metavar="FILE", help=f"TOML file of settings (${_variable(service, 'config')})")
    for key in keys:
        text = _help(key).replace("%", "%%")
        if key.kind is bool:
            parser.add_argument(key.flag, dest=key.name, action=argparse.BooleanOptionalAction, help=text)
        elif _is_list(key):
            parser.add_argument(key.flag, dest=key.name, action="append", metavar="TEXT", help=text + "; repeatable")
        else:
            parser.add_argument(key.flag, dest=key.name, metavar=key.kind.__name__.upper(), help=text)
    return parser


def _help(key: _Key) -> str:
    facts = key.facts
    bounds = [f"{word} {bound:g}" for word, bound in (("≥", facts.at_least), ("≤", facts.at_most)) if bound is not None]
    choices = _choices(key)
    words = [
        facts.help,
        f"one of {choices}" if choices else "",
        " and ".join(bounds),
        "required" if key.default is dataclasses.MISSING else f"default {_shown(key.default)}",
        f"${key.variable}" + (f" or ${facts.env}" if facts.env else ""),
    ]
    return "; ".join(word for word in words if word)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None or value == "" else str(value.value if isinstance(value, enum.Enum) else value)


def _from_file(path: Path, keys: Sequence[_Key]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise ConfigInvalid(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        table = tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigInvalid(f"{path}: not TOML: {' '.join(str(error).split())}") from error
    known = {key.name: key for key in keys}
    for name in table:
        if name not in known:
            raise ConfigInvalid(f"{path}: unknown key {name!r}; known are {', '.join(known)}")
    return {name: _convert(known[name], value, f"{path}: {name}") for name, value in table.items()}


def _from_environ(environ: Mapping[str, str], keys: Sequence[_Key]) -> dict[str, Any]:
    values = {}
    for key in keys:
        for variable in (key.variable, key.facts.env):
            if variable and environ.get(variable):
                values[key.name] = _convert(key, environ[variable], variable)
                break
    return values


def _convert(key: _Key, value: Any, source: str) -> Any:
    """``value`` in the type of the setting; text is read, TOML values must have the type already."""
    try:
        if _is_list(key):
            converted: Any = _texts(value)
        elif key.kind is bool:
            converted = _boolean(value)
        elif key.kind in (int, float):
            converted = _number(key.kind, value)
        else:
            converted = key.kind(_text(value, key.facts.choices))
    except ValueError:
        raise ConfigInvalid(f"{source}: {value!r} is not {_wanted(key)}") from None
    facts = key.facts
    below = facts.at_least is not None and not converted >= facts.at_least
    above = facts.at_most is not None and not converted <= facts.at_most
    if below or above:
        raise ConfigInvalid(f"{source}: {converted} is out of range, it must be {_range(facts)}")
    return converted


def _text(value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or (choices and value not in choices):
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    """A list of texts; in an environment variable they are separated by commas."""
    items = [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError
    return tuple(items)


def _boolean(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ValueError


def _number(kind: type[int] | type[float], value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | kind):
        raise ValueError  # noqa: TRY004 - caught where the source is known
    number = kind(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError
    return number


def _wanted(key: _Key) -> str:
    if choices := _choices(key):
        return f"one of {choices}"
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(key.kind, "a list of texts" if _is_list(key) else "a text")


def _choices(key: _Key) -> str:
    is_enum = isinstance(key.kind, type) and issubclass(key.kind, enum.Enum)
    return ", ".join(str(each.value) for each in key.kind) if is_enum else ", ".join(key.facts.choices)


def _is_list(key: _Key) -> bool:
    return typing.get_origin(key.kind) is tuple


def _range(facts: _Setting) -> str:
    if facts.at_most is None:
        return f"at least {facts.at_least:g}"
    return f"at most {facts.at_most:g}" if facts.at_least is None else f"{facts.at_least:g} to {facts.at_most:g}"


def _plain(hint: Any) -> Any:
    """The type of a setting without its ``| None``."""
    if isinstance(hint, types.UnionType):
        return next(each for each in typing.get_args(hint) if each is not type(None))
    return hint
