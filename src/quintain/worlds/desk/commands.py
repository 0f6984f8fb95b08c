"""The tools of `desk` as short commands in plain text, for models to which JSON and schemas are a burden.

``exchange 15 large`` is the call ``exchange(order=15, size="large")``. The one rule: `read` and `write` are
inverses, and what `read` cannot place is the policy's mistake, never a guess.
"""

from quintain.types import Action, ToolCall

COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "say": ("respond", ("text",)),
    "find": ("find_customer", ("name",)),
    "show": ("show_order", ("order",)),
    "stock": ("check_stock", ("item",)),
    "cancel": ("cancel", ("order",)),
    "refund": ("refund", ("order",)),
    "exchange": ("exchange", ("order", "size")),
    "send": ("change_city", ("order", "city")),
    "refuse": ("refuse", ("reason",)),
    "transfer": ("transfer", ()),
}
"""Command → tool and its arguments, in order."""
WORDS = {tool: command for command, (tool, _) in COMMANDS.items()}
FORMS = ", ".join(" ".join((word, *map(str.upper, names))) for word, (_, names) in COMMANDS.items())
INSTRUCTION = f" Act: {FORMS}."


def read(text: str) -> Action:
    """Return the tool call that `text` is, or an action with an error."""
    word, _, rest = text.strip().partition(" ")
    tool, names = COMMANDS.get(word.lower(), ("", ()))
    values = [rest.strip()] if names == ("text",) else rest.split()
    if not tool or len(values) != len(names) or "" in values:
        return Action(text=text, error=f"write one of: {FORMS}")
    arguments = {
        name: int(value) if name == "order" and value.isdecimal() and len(value) < 10 else value
        for name, value in zip(names, values, strict=True)
    }
    return Action(text=text, tool_calls=(ToolCall(name=tool, arguments=arguments),))


def write(action: Action) -> Action:
    """Return the tool call of `action` as a command."""
    (call,) = action.tool_calls
    return Action(text=" ".join((WORDS[call.name], *map(str, call.arguments.values()))))
