"""A8: chat templates that reach for Python, or that never end. Sizes and times are small: the bounds are, too."""

from collections.abc import Callable
from typing import Any

import jinja2
from tests.attacks.attack import Attack, Found, Scene, refused
from tests.text.conftest import backend, wrap
from transformers import PreTrainedTokenizerFast

from quintain.errors import ModelError
from quintain.text import probe, template
from quintain.text.encoder import TextEncoder
from quintain.text.template import Template

REACHES = {
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the globals of a function": "{{ cycler.__init__.__globals__.os.getcwd() }}",
    "the builtins": "{{ lipsum.__globals__['__builtins__']['len']('abc') }}",
    "an attribute by its name": "{{ (''|attr('__class__')).mro() }}",
    "the frame of a generator": "{{ (namespace|attr('__init__')).__globals__ }}",
    "attributes through format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "attributes through a map": "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "a change of the chat": "{{ messages.clear() or 'cleared' }}",
    "the class of a message": "{{ messages[0].__class__.__base__.__subclasses__ }}",
}
WRITES = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
ENDLESS = {
    "nested loops": "{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
    "macros that call each other": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(17) }}",
    "a text that is built for long": "{% for a in range(1500) %}{% for b in range(1500) %}{{ a * b }}{% endfor %}"
    "{% endfor %}",
}
LARGE = {
    "a long text": "{% set x = 'a' * 200000000 %}{{ x[:1] }}",
    "a wide text": "{% set x = '{:>200000000}'.format(1) %}{{ x[:1] }}",
    "a centred text": "{% set x = 'a'|center(200000000) %}{{ x[:1] }}",
    "a text that doubles": "{% set n = namespace(x='a') %}{% for i in range(28) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
    "{{ n.x[:1] }}",
}


def made(source: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer that comes with the template `source`."""
    markers = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    return wrap(backend(markers, ["go left"]), source, eos_token="<|im_end|>")


def chatted(source: str) -> str:
    """Return the first prompt of a chat."""
    tokenizer = made(source)
    chat = Template(tokenizer, TextEncoder(tokenizer), {})
    return chat.render([{"role": "user", "content": "hello"}])


def reaching(source: str) -> Callable[[Scene], Found]:
    """Return the attempt to have a template show what it must not reach."""

    def attempt(_: Scene) -> Found:
        try:
            text = chatted(f"{source}|{WRITES}")
        except ModelError as error:
            return Found(False, str(error))
        return Found(any(sign in text for sign in ("class", "/", "3|", "cleared")), text)

    return attempt


def plain(scene: Scene) -> None:
    """Render with Jinja as it is, without its sandbox."""

    def rendered(self: PreTrainedTokenizerFast, entries: list[Any], **named: Any) -> str:
        return jinja2.Environment().from_string(str(self.chat_template)).render(messages=entries, **named)

    scene.patch.setattr(PreTrainedTokenizerFast, "apply_chat_template", rendered)


def slow(source: str) -> Callable[[Scene], object]:
    """Return work that renders within little time and memory."""

    def work(scene: Scene) -> object:
        scene.patch.setattr(probe, "SECONDS", 0.15)
        scene.patch.setattr(probe, "MEMORY_BYTES", 160 << 20)
        return chatted(f"{source}|{WRITES}")

    return work


def unbounded(scene: Scene) -> None:
    """Do not try a template first; the first rendering is enough to see that it may take what it wants."""
    original = Template.render

    def rendered(self: Template, entries: Any, tools: Any = (), *, opens: bool = True) -> str:
        original(self, entries, tools, opens=opens)
        raise AssertionError("it was rendered")

    scene.patch.setattr(probe, "hazard", lambda *_: "")  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    scene.patch.setattr(Template, "render", rendered)


def long_source(_: Scene) -> object:
    """Make a chat with a template of more than a mebibyte."""
    return chatted("{# " + "x" * (1 << 20) + " #}" + WRITES)


def any_length(scene: Scene) -> None:
    """Take templates of every length."""
    scene.patch.setattr(template, "LONGEST_TEMPLATE", 1 << 30)


ATTACKS = [
    *(Attack("A8", f"reach {name}", reaching(source), plain) for name, source in REACHES.items()),
    *(
        Attack("A8", f"no end: {name}", refused(slow(source), by=ModelError), unbounded)
        for name, source in ENDLESS.items()
    ),
    *(
        Attack("A8", f"memory: {name}", refused(slow(source), by=ModelError), unbounded)
        for name, source in LARGE.items()
    ),
    Attack("A8", "a template of a mebibyte", refused(long_source, by=ModelError), any_length),
]
