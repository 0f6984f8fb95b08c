"""Functions of texts for the world `repo`."""

from random import Random

from quintain.worlds.repo.template import Arguments, Constants, Template

TEXT = (("text",), ("word",), ("line",))
WORDS = (
    "red",
    "apple",
    "stone",
    "level",
    "moon",
    "river",
    "noon",
    "paper",
    "eve",
    "cloud",
    "button",
    "kayak",
)
PALINDROMES = ("level", "noon", "eve", "kayak", "radar", "civic", "otto", "refer")
PLAIN = tuple(word for word in WORDS if word != word[::-1])


def _plain(rng: Random, _: Constants) -> list[Arguments]:
    return [[word] for word in rng.sample(PLAIN, 3)]


def _sentences(rng: Random, _: Constants) -> list[Arguments]:
    return [
        [" ".join(rng.sample(PLAIN, 3))],
        [" ".join(rng.sample(PLAIN, 2))],
        [" ".join(rng.sample(PLAIN, 4))],
    ]


def _mirrors(rng: Random, _: Constants) -> list[Arguments]:
    return [[rng.choice(PALINDROMES)], [rng.choice(PLAIN)], [f"{rng.choice(PLAIN)}x"]]


def _letters(rng: Random, _: Constants) -> list[Arguments]:
    word = rng.choice(PLAIN)
    letter = rng.choice(word)
    return [[word, letter], [word + letter, letter], [word.replace(letter, ""), letter]]


def _pairs(rng: Random, _: Constants) -> list[Arguments]:
    first, second = rng.sample(PLAIN, 2)
    return [[f"{first}={second}"], [f"{second}={first}"]]


TEXTS: dict[str, Template] = {
    "reverse": Template(
        says="Return $a backwards.",
        names=("reverse", "backwards", "turn_around"),
        arguments=TEXT,
        body=("result = ''", "for letter in $a:", "    result = letter + result", "return result"),
        bugs=(
            ("letter + result", "result + letter"),
            ("return result", "return $a"),
            ("in $a:", "in $a[1:]:"),
        ),
        solve=lambda _, text: text[::-1],
        cases=_plain,
    ),
    "is_mirror": Template(
        says="Return whether $a reads the same backwards.",
        names=("is_mirror", "is_palindrome", "is_even_way"),
        arguments=TEXT,
        body=("return $a == $a[::-1]",),
        bugs=(("==", "!="), ("[::-1]", "[:-1]"), ("[::-1]", "[::1]")),
        solve=lambda _, text: list(text) == list(reversed(text)),
        cases=_mirrors,
    ),
    "count_letter": Template(
        says="Return how often $b stands in $a.",
        names=("count_letter", "occurrences", "how_often"),
        arguments=(("text", "letter"), ("word", "char"), ("line", "sign")),
        body=("count = 0", "for one in $a:", "    if one == $b:", "        count += 1", "return count"),
        bugs=(("one == $b", "one != $b"), ("count = 0", "count = 1"), ("return count", "return len($a)")),
        solve=lambda _, text, letter: text.count(letter),
        cases=_letters,
    ),
    "count_vowels": Template(
        says="Return the number of vowels in $a.",
        names=("count_vowels", "num_vowels", "vowels"),
        arguments=TEXT,
        body=("return sum(1 for letter in $a if letter in 'aeiou')",),
        bugs=(("if letter in", "if letter not in"), ("sum(1 ", "sum(2 "), ("in $a if", "in $a * 2 if")),
        solve=lambda _, text: len([letter for letter in text if letter in set("aeiou")]),
        cases=lambda rng, _: [
            ["apple" + rng.choice(PLAIN)],
            ["stone" + rng.choice("bcd")],
            [rng.choice("bcd") * 3],
        ],
    ),
    "initials": Template(
        says="Return the first letters of the words of $a.",
        names=("initials", "first_letters", "short_form"),
        arguments=(("text",), ("name",), ("line",)),
        body=("return ''.join(word[0] for word in $a.split())",),
        bugs=(("word[0]", "word[-1]"), ("''.join", "' '.join"), ("in $a.split()", "in $a.split()[1:]")),
        solve=lambda _, text: "".join(word[:1] for word in text.split(" ")),
        cases=_sentences,
    ),
    "longest": Template(
        says="Return the length of the longest word of $a.",
        names=("longest", "max_width", "word_width"),
        arguments=(("text",), ("line",)),
        body=("best = 0", "for word in $a.split():", "    best = max(best, len(word))", "return best"),
        bugs=(("max(", "min("), ("len(word)", "len($a)"), ("best = 0", "best = 99")),
        solve=lambda _, text: max(map(len, text.split(" "))),
        cases=_sentences,
    ),
    "num_words": Template(
        says="Return the number of words of $a.",
        names=("num_words", "count_words", "word_count"),
        arguments=(("text",), ("line",)),
        body=("words = $a.split()", "return len(words)"),
        bugs=(("$a.split()", "$a"), ("len(words)", "len(words) - 1"), ("len(words)", "len(words) + 1")),
        solve=lambda _, text: text.count(" ") + 1,
        cases=_sentences,
    ),
    "shift": Template(
        says="Return $a with every letter moved on by $k in the alphabet.",
        names=("shift", "caesar", "move_on"),
        arguments=TEXT,
        body=("return ''.join(chr((ord(letter) - 97 + $k) % 26 + 97) for letter in $a)",),
        bugs=(("+ $k)", "- $k)"), ("% 26 + 97", "% 26 + 98"), ("- 97 +", "- 98 +")),
        solve=lambda k, text: "".join(
            "abcdefghijklmnopqrstuvwxyz"[(ord(c) - ord("a") + k["k"]) % 26] for c in text
        ),
        cases=_plain,
        constants={"k": (1, 2, 3, 4, 5, 6, 7)},
    ),
    "shorten": Template(
        says="Return $a cut to $k letters, with two dots where something was cut.",
        names=("shorten", "cut", "clip"),
        arguments=TEXT,
        body=("if len($a) <= $k:", "    return $a", "return $a[:$k] + '..'"),
        bugs=(("<= $k", "< $k"), ("[:$k]", "[$k:]"), ("+ '..'", "+ '.'")),
        solve=lambda k, text: text if len(text) <= k["k"] else text[: k["k"]] + "..",
        cases=lambda rng, k: [
            ["".join(rng.sample("abcdefghij", k["k"]))],
            ["".join(rng.sample("bcdefghijk", k["k"] + 2))],
        ],
        constants={"k": (3, 4, 5, 6)},
    ),
    "pad": Template(
        says="Return $a with zeros in front, $k letters long.",
        names=("pad", "fill", "with_zeros"),
        arguments=TEXT,
        body=("while len($a) < $k:", "    $a = '0' + $a", "return $a"),
        bugs=(("'0' + $a", "$a + '0'"), ("< $k", "<= $k"), ("< $k", "< $k - 1")),
        solve=lambda k, text: text.rjust(k["k"], "0"),
        cases=lambda rng, k: [[str(rng.randint(1, 9))], [str(rng.randint(10, 99))], ["7" * k["k"]]],
        constants={"k": (4, 5, 6, 7)},
    ),
    "key_of": Template(
        says="Return what stands before the = of $a.",
        names=("key_of", "left_side", "name_part"),
        arguments=(("line",), ("text",), ("entry",)),
        body=("parts = $a.split('=')", "return parts[0]"),
        bugs=(("parts[0]", "parts[1]"), ("split('=')", "split('-')"), ("return parts[0]", "return parts")),
        solve=lambda _, line: line[: line.index("=")],
        cases=_pairs,
    ),
    "swap": Template(
        says="Return the two sides of $a around the = the other way round.",
        names=("swap", "flip", "exchange"),
        arguments=(("line",), ("text",), ("entry",)),
        body=("left, right = $a.split('=')", "return right + '=' + left"),
        bugs=(
            ("right + '=' + left", "left + '=' + right"),
            ("'=' + left", "'-' + left"),
            ("right + '='", "left + '='"),
        ),
        solve=lambda _, line: "=".join(reversed(line.split("="))),
        cases=_pairs,
    ),
}
