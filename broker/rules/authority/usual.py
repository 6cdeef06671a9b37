"""Whether all argument rules hold for a call, asked at once: the usual kinds of rule without a step between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.errors import Malformed
from broker.rules.authority import arguments
from broker.rules.authority.arguments import Check, MissingOperand
from broker.wire import operands
from broker.wire.json_pointer import EVERY
from broker.wire.policy_terms import AtMost, Between, Equals, Rule, Within
from broker.wire.strict_json import JsonObject


@dataclass(frozen=True, slots=True)
class Usual:
    """Rules by their kind. Those of one argument stand with what they ask of it; the rest are asked one by one."""

    numbers: list[tuple[str, int, int]] = field(default_factory=list)
    lengths: list[tuple[str, int]] = field(default_factory=list)
    texts: list[tuple[str, frozenset[object]]] = field(default_factory=list)
    paths: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    rest: list[Check] = field(default_factory=list)

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Usual:
        """These rules, in any order."""
        usual = cls()
        for rule in rules:
            match rule:
                case Rule((name,), Between(low, high)) if name != EVERY:
                    usual.numbers.append((name, *arguments.bounds(low, high)))
                case Rule((name,), AtMost(length)) if name != EVERY:
                    usual.lengths.append((name, length))
                case Rule((name,), Equals(values)) if name != EVERY and all(type(value) is str for value in values):
                    usual.texts.append((name, frozenset(values)))
                case Rule((name,), Within(prefixes)) if name != EVERY:
                    usual.paths.append((name, operands.starts(prefixes)))
                case _:
                    usual.rest.append(arguments.check_of(rule.pointer, rule.test))
        return usual

    def hold(self, values: JsonObject) -> bool:
        """Where one does not, the way through them one by one tells which, and why."""
        try:
            for name, lowest, highest in self.numbers:
                if type(value := values[name]) is not int or not lowest <= value <= highest:
                    return False
            for name, most in self.lengths:
                value = values[name]
                if (type(value) is not str and type(value) is not list) or len(value) > most:
                    return False
            for name, among in self.texts:
                if type(value := values[name]) is not str or value not in among:
                    return False
            for name, starts in self.paths:
                if type(value := values[name]) is not str or not operands.folder(value).startswith(starts):
                    return False
            return all(check(values) for check in self.rest)
        except (KeyError, MissingOperand, Malformed):
            return False
