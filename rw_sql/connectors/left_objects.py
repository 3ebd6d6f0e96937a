"""Describes an object on a server that holds records back for a source, such as a subscription. A move of the source to
another server or topic leaves this object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingObject:
    """``title`` names the object, such as ``subscription "rw-1"``. ``place`` is the server or topic that holds records
    back for the object. ``removal`` is the shell command that removes the object. Two objects with the same title and
    the same place are the same object."""

    title: str
    place: str
    removal: str


@runtime_checkable
class LeavingConnector(Protocol):
    """A connector whose sources have one such object each, which the first run of a source creates."""

    def holding_object(self, options: Mapping[str, str]) -> HoldingObject:
        """The object of a source with these options. Contacts no server. The options contain no values of secrets."""
        ...
