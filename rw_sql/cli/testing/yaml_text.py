"""Reads YAML. Numbers, truth values and times keep their original text, and a key that occurs twice is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from rw_sql.cli.testing.outcome import WrongTestError
from rw_sql.cli.testing.values import Written

_KEPT = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp"))


def read_yaml(text: str, file: str) -> tuple[Any, Any]:
    """Returns the document of a YAML text, and the root node of the document. The nodes contain the positions in the
    text.

    Unquoted numbers, truth values and times become :class:`Written`. Raises WrongTestError if the text is not valid
    YAML, or if a key occurs twice in a mapping. PyYAML would ignore the first occurrence of such a key.
    """
    import yaml

    loader = _loader_class()(text)
    try:
        root = loader.get_single_node()
        return (loader.construct_document(root) if root is not None else None), root
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise WrongTestError(f"not valid YAML: {problem}", file=file, line=mark.line + 1 if mark else None) from error
    except ValueError as error:  # such as the date 2024-02-30
        raise WrongTestError(f"not valid YAML: {error}", file=file) from error
    finally:
        loader.dispose()


def plain(value: Any) -> Any:
    """Returns a part of a document in which each :class:`Written` is replaced with its ``value``."""
    match value:
        case Written():
            return value.value
        case list():
            return [plain(inner) for inner in value]
        case dict():
            return {plain(key): plain(inner) for key, inner in value.items()}
        case _:
            return value


@cache
def _loader_class() -> Any:
    import yaml
    from yaml.constructor import ConstructorError

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in seen:
                        problem = f'the key "{key.value}" occurs twice'
                        raise ConstructorError(None, None, problem, key.start_mark)
                    seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep=deep)

        def construct_written(self, node: Any) -> Written:
            return Written(super().yaml_constructors[node.tag](self, node), node.value)

    for tag in _KEPT:
        Loader.add_constructor(tag, Loader.construct_written)
    return Loader
