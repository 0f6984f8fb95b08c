"""Questions that take several facts: search for one, then for the next, then answer.

Families it stands for: HotpotQA, MuSiQue and 2WikiMultihopQA with a search tool, as in Search-R1. Some questions come
with all that is needed, so that searching is a waste. One answer is accepted or refused, and ends the episode.
"""

import re
from random import Random
from typing import ClassVar, Literal, get_args

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.environments.tools import ToolFault, tool
from quintain.errors import UsageError
from quintain.retrieval.bm25 import package
from quintain.retrieval.passages import Passage
from quintain.retrieval.retriever import Kind, Recorded, Remote, RetrievalTrouble, Retriever
from quintain.rewards.answers import exact_match, token_f1
from quintain.types import Action, StepResult, Task, ToolCall, ToolSpec, derive_seed
from quintain.worlds.hopqa.corpus import (
    FEWEST,
    MOST,
    Facts,
    Texts,
    draw_facts,
    index_over,
    numbers_in,
    read_texts,
)
from quintain.worlds.hopqa.facts import (
    MAX_DISTRACTORS,
    MAX_HOPS,
    MAX_ROUNDS,
    Question,
    QuestionShape,
    draw_question,
    harder,
)
from quintain.worlds.hopqa.search import index_of
from quintain.worlds.hopqa.synthesis import KIND_OF, evolve

WRITTEN = re.compile(r"\s*(search|quote|answer)\s+(\S.*?)\s*", re.IGNORECASE | re.DOTALL)
"""A call in plain text: ``search seat orbit`` or ``answer Rome``."""
ARGUMENTS = {"search": "query", "quote": "text", "answer": "text"}
UNQUOTED = 0.5
"""What an answer is worth without a quote that holds it, where quotes are asked for."""
NOTHING_FOUND = "Nothing found."
FAILED = "The search failed; try again."
State = tuple[Question, frozenset[int], tuple[str, ...], int, tuple[str, ...], tuple[str, ...]]


class HopQA(Environment):
    """Answer the question. Search for facts you do not know; you can answer once."""

    name = "hopqa"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "memory", "reasoning"})

    def __init__(
        self,
        *,
        hops: int = 2,
        least_hops: int = 1,
        rounds: int = 0,
        evolved: int = 0,
        distractors: int = 12,
        closed: float = 0.25,
        decoys: int = 0,
        top: int = 1,
        failures: float = 0.0,
        cost: float = 0.0,
        hits: float = 0.0,
        grading: Literal["em", "f1"] = "em",
        paragraphs: Literal["fact", "article"] = "fact",
        names: Literal["known", "made", "full"] = "known",
        early: float = 0.25,
        quotes: int = 0,
        noise: int = 0,
        facts: int = 0,
        missing: float = 0.0,
        changed: float = 0.0,
        corpus: str = "",
        retriever: str = "bm25",
        record: str = "",
        deadline: float = 10.0,
        max_turns: int = 0,
    ) -> None:
        """Ask questions of `least_hops` to `hops` facts over a corpus with `distractors` other facts.

        In up to `rounds` rounds the thing that a question is about becomes a description, a fact more to be found.
        In up to `evolved` further rounds one is put before it, or its name is taken away and a detail left
        (`synthesis`).
        With probability `closed` the facts are told with the question; with `decoys` 1 the other questions come with
        as many paragraphs that do not answer them. A search returns the `top` best
        paragraphs, takes `cost` off the reward, and fails with probability `failures`. The share `hits` of the
        reward is paid for needed facts when they are first found, the rest for the answer by `grading`.
        The share `early` of typical mistakes are answers given too early, the others searches. With `quotes` there is a
        tool that quotes so many times, and an answer pays fully only with a quote that holds it, out of what the last
        search returned when it was quoted (WebGPT, arXiv 2112.09332). `noise` sentences that mean nothing follow every
        paragraph.

        With `facts` all questions are about one corpus of so many, of which the share `missing` is told nowhere (the
        answer is then `unknown`), and of the share `changed` it is also told what was before. With `corpus`, a
        folder or file of texts, a sentence is quoted and the title of the text that says it is the answer.
        Such a corpus is searched by `retriever`: bm25, dense, hnsw, or the address of a server
        (``quintain retrieve 'hopqa?facts=50000'``), which has `deadline` seconds for a search; the file `record`
        keeps what it answered and gives it again.

        There are `max_turns`; 0: twice as many as the longest question takes, twice that where searches fail, and one
        more for each quote.

        Raises:
            MissingExtra: bm25s is not installed.
            UsageError: there are no such questions.
            DataError: the corpus of texts cannot be read.
        """
        if not 1 <= least_hops <= hops <= MAX_HOPS or not 0 <= distractors <= MAX_DISTRACTORS or top < 1:
            raise UsageError(
                f"hopqa: got least_hops={least_hops}, hops={hops}, distractors={distractors}, top={top}; give "
                f"1 <= least_hops <= hops <= {MAX_HOPS}, 0 to {MAX_DISTRACTORS} distractors and a top of at least 1"
            )
        shares = closed, hits, early
        if not all(0 <= share <= 1 for share in shares) or not 0 <= failures < 1 or cost < 0 or noise < 0:
            raise UsageError(
                f"hopqa: got closed={closed}, hits={hits}, early={early}, failures={failures}, cost={cost}, "
                f"noise={noise}; give shares from 0 to 1, failures below 1 and no negative number"
            )
        if quotes < 0 or max_turns < 0:
            raise UsageError(f"hopqa: got quotes={quotes}, max_turns={max_turns}; give 0 or more of each")
        if decoys not in (0, 1):
            raise UsageError(f"hopqa: got decoys={decoys}; give 0 or 1")
        if not 0 <= rounds <= MAX_ROUNDS or not 0 <= evolved <= MAX_ROUNDS:
            raise UsageError(f"hopqa: got rounds={rounds}, evolved={evolved}; give 0 to {MAX_ROUNDS} of each")
        if (facts and not FEWEST <= facts <= MOST) or not 0 <= missing < 1 or not 0 <= changed <= 1:
            raise UsageError(
                f"hopqa: got facts={facts}, missing={missing}, changed={changed}; give 0 or {FEWEST} to {MOST} facts, "
                "a share below 1 that is missing, and up to 1 that has changed"
            )
        name = "facts" if facts else "corpus"
        shared = f"facts={facts}" if facts else f"corpus={corpus!r}" if corpus else ""
        own = "only questions that have facts of their own are made harder"
        wrong = (
            (facts and corpus, f"facts={facts} with corpus={corpus!r}", "give one of them"),
            (shared and rounds, f"rounds={rounds} with {shared}", f"leave out rounds or {name}: {own}"),
            (shared and evolved, f"evolved={evolved} with {shared}", f"leave out evolved or {name}: {own}"),
            (
                corpus and least_hops > 1,
                f"least_hops={least_hops} with {shared}",
                "leave out least_hops: a question about texts asks for one of them",
            ),
            (
                (missing or changed) and not facts,
                f"missing={missing}, changed={changed} without facts",
                "give facts, or leave these out",
            ),
            (
                (retriever != "bm25" or record) and not shared,
                f"retriever={retriever!r}, record={record!r} without facts or corpus",
                "give one of them, or leave these out",
            ),
        )
        for got, advice in ((got, advice) for is_wrong, got, advice in wrong if is_wrong):
            raise UsageError(f"hopqa: got {got}; {advice} (docs/worlds/hopqa.md)")
        self._corpus: Facts | Texts | None = None
        if facts:
            self._corpus = draw_facts(facts, missing, changed, paragraphs == "article")
        elif corpus:
            self._corpus = read_texts(corpus)
        is_local = retriever in get_args(Kind)
        if not is_local and "://" not in retriever:
            raise UsageError(
                f"hopqa: got retriever={retriever!r}; give {', '.join(get_args(Kind))}, or http://127.0.0.1:8200"
            )
        self._served = None if is_local else Remote(retriever, deadline=deadline)
        self._retriever: Retriever | None = self._served
        self._kind, self._record = retriever, record
        if retriever == "bm25":
            package()
        self._rounds, self._evolved = rounds, evolved
        self._shape = QuestionShape(
            1 if corpus else hops, least_hops, distractors, closed, paragraphs == "article", names == "made",
            decoys == 1, names == "full",
        )  # fmt: skip
        self._top, self._failures, self._cost, self._hits = top, failures, cost, hits
        self._grading, self._noise, self._early = grading, noise, early
        self._quotes = quotes
        usual = (2 * (hops + rounds + evolved) + 2) * (2 if failures else 1) + quotes
        self.max_turns = max_turns or usual
        self.return_range = (0.0 - cost * self.max_turns, 1.0)
        self._question = Question(chain=(), paragraphs=(), titles=(), sources=(), is_closed=False, told=())
        self._shown: frozenset[int] = frozenset()
        self._queries: tuple[str, ...] = ()
        self._page: tuple[str, ...] = ()
        self._quoted: tuple[str, ...] = ()
        self._seed = 0

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools; one that quotes is there where quotes are asked for."""
        return tuple(each for each in super().tools() if self._quotes or each.name != "quote")

    def reset(self, task: Task) -> str:
        """Ask the question of the task."""
        self._question = split_draw(task, self._draw)
        self._seed, self._queries = task.seed, ()
        question = self._question
        self._shown, self._quoted = frozenset(question.told), ()
        self._page = tuple(self._paragraph(number) for number in question.told)
        told = "".join(f" {paragraph}" for paragraph in self._page)
        return f"{question.words()}{told}{chatter(self._noise, self._seed)}"

    def step(self, action: Action) -> StepResult:
        """Take a search or an answer as a tool call, or written out when no tool was called."""
        written = WRITTEN.fullmatch(action.text)
        name = written[1].lower() if written else ""
        if action.error is None and not action.tool_calls and written and (self._quotes or name != "quote"):
            call = ToolCall(name=name, arguments={ARGUMENTS[name]: written[2]})
            action = Action(text=action.text, tool_calls=(call,))
        return super().step(action)

    @tool
    def search(self, query: str) -> str:
        """Search for paragraphs.

        Args:
            query: the words to look for
        """
        number = len(self._queries)
        self._queries = (*self._queries, query)
        if self._cost:
            self.reward(-self._cost, search=-self._cost)
        if derive_seed("search", self._seed, number) % 10_000 < 10_000 * self._failures:
            return FAILED
        question = self._question
        found = self._find(query)
        gained = len(set(found) & set(question.sources) - self._shown)
        self._shown |= set(found)
        self._page = tuple(self._paragraph(place) for place in found)
        if gained and self._pays_hits:
            value = self._hits * gained / len(set(question.sources))
            self.reward(value, hit=value)
        paragraphs = [
            self._show_paragraph(place) + chatter(self._noise, self._seed, number, place) for place in found
        ]
        return "\n".join(paragraphs) or NOTHING_FOUND

    @tool
    def quote(self, text: str) -> str:
        """Quote what the last search returned, word for word.

        Args:
            text: the words to quote
        """
        if len(self._quoted) >= self._quotes:
            return "There are no quotes left."
        words = " ".join(text.split()).casefold()
        if not words or not any(words in paragraph.casefold() for paragraph in self._page):
            return "That is not what was found."
        self._quoted = (*self._quoted, words)
        return "quoted"

    @tool
    def answer(self, text: str) -> str:
        """Answer the question. You can answer once.

        Args:
            text: the answer alone
        """
        wanted = self._question.gold
        is_right = exact_match(text, (wanted,)) == 1
        score = float(is_right) if self._grading == "em" else token_f1(text, (wanted,))
        value = score * (1 - self._hits if self._pays_hits else 1)
        is_backed = not self._quotes or self._is_quoted
        value *= 1 if is_backed else UNQUOTED
        self.reward(value, answer=value)
        said = "correct" if is_right and is_backed else "correct, but not quoted" if is_right else "wrong"
        return self.finish(said, reward=0.0, success=is_right and is_backed)

    @property
    def is_closed(self) -> bool:
        """Whether the question came with all that is needed: every search is a waste."""
        return self._question.is_closed

    @property
    def queries(self) -> tuple[str, ...]:
        """What was searched for in this episode; a query that occurs twice was a waste."""
        return self._queries

    def expert_action(self) -> Action:
        """Return the search for the first fact that is not known yet, else the answer."""
        question = self._question
        for fact, source in zip(question.chain, question.sources, strict=True):
            if source not in self._shown:
                query = f"{fact.relation} {fact.subject}" if fact.relation in KIND_OF else fact.subject
                if source < 0 and query in self._queries:
                    break  # nobody knows it
                # Asked in vain, unless the search failed: another paragraph fits better, so look for the thing.
                patience = 3 if self._failures else 1
                is_vain = self._queries.count(query) >= patience and self._queries[-1] == query
                return tool_action("search", query=fact.subject if is_vain else query)
        if self._quotes > len(self._quoted) and not self._is_quoted:
            fact, paragraph = question.chain[-1], question.paragraphs[question.sources[-1]]
            if paragraph in self._page:
                return tool_action("quote", text=paragraph)
            if self._queries[-2:] != (fact.subject,) * 2:
                return tool_action("search", query=fact.subject if self._queries else fact.relation)
        return tool_action("answer", text=question.gold)

    def mistaken_action(self, rng: Random) -> Action:
        """Search for what is known, or too vaguely where nothing is, or answer too early; see `noisy.Fallible`."""
        question = self._question
        if rng.random() < self._early:
            return tool_action("answer", text=rng.choice(question.chain).subject)
        facts = zip(question.chain, question.sources, strict=True)
        known = [f"{fact.relation} {fact.subject}" for fact, source in facts if source in self._shown]
        return tool_action("search", query=rng.choice(known) if known else question.chain[0].relation)

    def methods(self) -> tuple[str, ...]:
        """Return the two ways to answer: at once, or only after searching; see `noisy.Methodical`."""
        return ("direct", "searching")

    def act_by(self, method: str, rng: Random) -> Action:
        """Answer at once, by a guess where facts are missing; or search for each fact, for those that were told too."""
        chain, done = self._question.chain, len(self._queries)
        if method == "searching":
            if done < len(chain):
                return tool_action("search", query=f"{chain[done].relation} {chain[done].subject}")
            return self.expert_action()
        is_known = set(self._question.sources) <= self._shown
        return self.expert_action() if is_known else tool_action("answer", text=rng.choice(chain).subject)

    def snapshot(self) -> State:
        """Return the question and what was searched for and found."""
        return self._question, self._shown, self._queries, self._seed, self._page, self._quoted

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._question, self._shown, self._queries, self._seed, self._page, self._quoted = state

    def state_key(self) -> str:
        """Return which paragraphs were found; how many searches that took counts only where they can fail."""
        known = sorted(self._shown), len(self._queries) if self._failures else 0
        return repr((*known, sorted(self._page), sorted(self._quoted)) if self._quotes else known)

    def passages(self) -> tuple[Passage, ...]:
        """Return the texts that all questions share, for a server that searches them.

        Raises:
            UsageError: every question has its own.
        """
        if self._corpus is None:
            raise UsageError(
                "texts of hopqa: got questions that have their own; give facts=50000, or corpus=PATH"
            )
        return self._corpus.passages

    def close(self) -> None:
        """Give up what is still asked of a server."""
        if self._served is not None:
            self._served.close()
        if isinstance(self._retriever, Recorded):
            self._retriever.close()

    def _draw(self, rng: Random) -> Question:
        """Return a question."""
        if self._corpus is not None:
            return self._corpus.question(self._shape, rng)
        question = harder(draw_question(self._shape, rng), self._rounds, rng)
        return evolve(question, self._evolved, rng).question if self._evolved else question

    def _paragraph(self, number: int) -> str:
        """Return paragraph `number`."""
        return (
            self._question.paragraphs[number] if self._corpus is None else self._corpus.passages[number].text
        )

    def _show_paragraph(self, number: int) -> str:
        """Return paragraph `number` as a search shows it: with its title where that is what is asked for."""
        if isinstance(self._corpus, Texts):
            passage = self._corpus.passages[number]
            return f"{passage.title}: {passage.text}"
        return self._paragraph(number)

    def _find(self, query: str) -> tuple[int, ...]:
        """Return the numbers of the paragraphs that a search for `query` finds, the best first.

        Raises:
            ToolFault: who searches is slow or broken, or searches another corpus.
        """
        question = self._question
        if self._corpus is None:
            return index_of(question.titles, question.paragraphs).best(query, self._top)
        try:
            return tuple(self._number(found.passage) for found in self._searcher().search(query, self._top))
        except RetrievalTrouble as trouble:
            fault = ToolFault.of("search", f"has no answer: {trouble}")
            fault.kind = f"tool_{trouble.kind}"
            raise fault from trouble

    def _searcher(self) -> Retriever:
        """Return who searches the corpus; an index is made when it is first asked."""
        assert self._corpus is not None, "a corpus is searched"
        if self._retriever is None:
            self._retriever = index_over(self._corpus, self._kind)
        if self._record and not isinstance(self._retriever, Recorded):
            self._retriever = Recorded(self._retriever, self._record)
        return self._retriever

    def _number(self, passage: Passage) -> int:
        """Return the number of `passage` in the corpus.

        Raises:
            RetrievalTrouble: it does not hold it.
        """
        assert self._corpus is not None, "a corpus was searched"
        number = numbers_in(self._corpus).get(passage.id, -1)
        if number < 0 or self._corpus.passages[number].text != passage.text:
            raise RetrievalTrouble(
                "malformed",
                f"retriever {self._kind}: got the passage {passage.text!r:.60}, which is not in this corpus; let it "
                "search the same one",
            )
        return number

    @property
    def _is_quoted(self) -> bool:
        """Whether a quote holds the answer."""
        wanted = self._question.gold.casefold()
        return any(wanted in words for words in self._quoted)

    @property
    def _pays_hits(self) -> bool:
        """Whether finding facts is paid for; there are none to find where they were told."""
        return self._hits > 0 and not self.is_closed
