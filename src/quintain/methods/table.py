"""The one table of methods: what they are called, where their code is, what they are compared with, what is shown.

It makes the names that ``quintain train`` takes, the list of ``quintain methods``, and the tables of README, docs and
navigation (`docs/tables.py`). What is known of a method, in columns, is computed from its results, which are in
``evidence/``, and from its values: ``python docs/tables.py`` writes it into ``columns.json``, and nobody by hand.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COLUMNS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("columns.json").read_text(encoding="utf-8")
)
"""name → its columns, as `Columns` has them; those without are as they begin"""


class Columns(NamedTuple):
    """What is known of a method; as it begins, nothing."""

    done: bool = False
    """whether the formula holds, the mechanism is shown or a property, and it was seen to run on a real model"""
    formula: str = "not run"
    """does it compute what the paper says? holds, departs, not run"""
    mechanism: str = "not shown"
    """does it do what the paper says, for the reason that it says? shown, not shown, property"""
    comparison: str = "none"
    """is it better than what the paper compares it with? better, not worse, unresolved, worse, none"""
    real_model: str | None = None
    """the day on which it was seen to train a real model end to end"""
    departs: str = ""
    """where it departs from the paper's formula, in a sentence"""
    not_shown: tuple[str, ...] = ()
    """why the mechanism is not shown"""
    compared: dict[str, Any] | None = None
    """baseline, world, model, difference, interval, seeds and power of the comparison, and why it is none"""
    needs: tuple[str, ...] = ()
    """what it needs beside a model"""
    reads_files: bool = False
    """whether files in the place of an environment are enough"""


GROUP = "quintain.methods"
"""Entry points of packages that bring methods: each names a module, ``mine = "package.module"``."""


class Entry(NamedTuple):
    """A method: ``Entry("GiGPO", "rl", "written", name="gigpo", module="rl.gigpo", …)``."""

    title: str
    family: str
    code: Literal["written", "planned"]
    name: str = ""
    """what ``quintain train`` takes where there is a module; empty where there is no code of its own"""
    module: str = ""
    """below `quintain.methods`; empty for what is no training, such as a harness"""
    page: str = ""
    """what the navigation calls its page, docs/methods/NAME.md"""
    section: str = ""
    """of docs/methods/index.md"""
    about: str = ""
    against: str = ""
    """what it is compared with, in Markdown"""
    is_row: bool = True
    """whether it is one of the published systems that the project is to hold"""

    @property
    def columns(self) -> Columns:
        """Return what is known of it."""
        return Columns(**COLUMNS.get(self.name, {}))


RECORDED = "Imitation, self-training, preferences"
GROUPS = "Groups of episodes, no critic"
RETURNS = "Returns and critics"
TURNS = "Credit to turns"
TOOLBOXES = "Search, code and many tools"
REPLAYED = "Critics off-policy"
SINGLE = "Single steps and recorded contexts"
EXPLORATION = "Exploration, thought and length"
CHOICES = "Choosing among legal actions"
TOOLS = "Tools"
ANY = "Any credit with any loss"
"""Sections of docs/methods/index.md."""

PURPOSES: dict[str, tuple[str, ...]] = {
    "There are recordings of good behaviour, or an expert": (
        "sft", "fireact", "agent_tuning", "agent_flan", "agent_bank", "atlas", "steca", "ire_vla", "world_of_bits",
    ),
    "An environment says whether a task is solved": (
        "grpo", "rloo", "loop", "dr_grpo", "dapo", "gspo", "cispo", "lite_ppo", "reinforce", "reinforce_plus_plus",
        "ppo", "starpo", "ui_tars2", "grpo_tcr", "scaling_inter", "policy_gradient",
    ),
    "It succeeds now and then, and compute is little": (
        "rft", "star", "rest", "rest_react", "agent_evol", "rest_mcts", "androidgen", "pae", "paprika",
    ),
    "There are failures, or pairs of better and worse": (
        "nat", "dpo", "eto", "ipr", "dmpo", "m_dpo", "rro", "step_agent", "agent_r", "agent_q", "e2cl", "pgpo", "dits",
        "sweet_rl", "self_rewarding",
    ),
    "People judge what it does": (
        "reward_model", "human_preferences", "learning_to_summarize", "instruct_gpt", "web_gpt",
    ),
    "Episodes are long, and which turn it was is not told": (
        "gigpo", "openmanus", "mt_grpo", "spa_rl", "pag", "metaspatial", "vine", "mucode", "epo", "swirl",
    ),
    "Steps of the environment are dear, so that they are used again": ("archer", "digi_rl", "digi_q", "web_rl"),
    "It tries too little, or thinks too long": ("coso", "greedy", "rlsp", "act_more"),
    "What can be done is listed, or is a place on a screen": ("glam", "twosome", "ui_r1"),
    "It calls tools, and should call them rightly, or less": (
        "toolrl", "otc", "torl", "retool", "agent_rft", "dare",
    ),
    "It searches in a corpus, or on the web": (
        "search_r1", "r1_searcher", "research", "asearcher", "search_o1", "deep_research",
    ),
    "Several agents share a task": ("optima", "mpo", "owl", "afm", "autoglm", "rladapter", "moe_dialogue"),
    "Tasks or transcripts are to be made first": (
        "goat", "agent_gen", "xlam", "lam_simulator", "web_dancer", "exif", "agent0",
    ),
}  # fmt: skip
"""What somebody has or lacks → the methods for that, the plainest first; each method that has a page stands once."""


def add_row(
    title: str,
    family: str,
    name: str,
    section: str,
    about: str,
    against: str = "",
    *,
    page: str = "",
    module: str = "",
    is_row: bool = True,
) -> Entry:
    """Return a method that trains; its page is called as its title and its module FAMILY.NAME, unless it is said."""
    return Entry(
        title,
        family,
        "written",
        name=name,
        module=module or f"{family}.{name}",
        page=page or title,
        section=section,
        about=about,
        against=against,
        is_row=is_row,
    )


TABLE: tuple[Entry, ...] = (
    add_row("FireAct", "imitation", "fireact", RECORDED,
        "what came out right, of teachers who each act in one way", "one way"),
    add_row("AgentTuning / AgentLM", "imitation", "agent_tuning", RECORDED,
        "agents' episodes as a share of general data", "`sft`", page="AgentTuning"),
    add_row("ATLaS", "imitation", "atlas", RECORDED,
        "only the critical turns of the expert", "`sft`"),
    add_row("STeCa", "imitation", "steca", RECORDED,
        "the expert's way out of steps that cost the policy its success", "`sft`"),
    add_row("Paprika", "imitation", "paprika", RECORDED,
        "the best of one's own episodes against worse ones, on kinds of tasks that can be learned", "`rft`, `dpo`"),
    add_row("iRe-VLA", "imitation", "ire_vla", RECORDED,
        "PPO on a light head, then imitation of expert and own successes by all weights, again", "`ppo`, `sft`"),
    add_row("PAE", "imitation", "pae", RECORDED,
        "the shortest accepted episodes of each proposed task", "`rft`"),
    add_row("World of Bits", "imitation", "world_of_bits", RECORDED,
        "imitation, then actor-critic on a success that decays with time", "`sft`, `ppo`"),
    add_row("Agent-FLAN", "imitation", "agent_flan", RECORDED,
        "capabilities in given shares, and refusals", "itself"),
    add_row("AgentBank / Samoyed", "imitation", "agent_bank", RECORDED,
        "forced actions for what the teacher failed", "itself", page="AgentBank"),
    add_row("xLAM", "imitation", "xlam", RECORDED,
        "calls that are checked by format, schema and what was said", "schema validation alone"),
    add_row("LAM Simulator", "imitation", "lam_simulator", RECORDED,
        "own calls of tools, with feedback: what solved its task, then right calls against refused ones",
        "itself without filters"),
    add_row("WebDancer", "imitation", "web_dancer", RECORDED,
        "the valid, right and thrifty of many tries, then RL with dynamic sampling", "itself without imitation"),
    add_row("AndroidGen", "imitation", "androidgen", RECORDED,
        "own failures, up to their last subgoal", "`rft`", module="selftraining.androidgen"),
    add_row("AutoGLM", "imitation", "autoglm", RECORDED,
        "a planner who names things and a grounder who finds them, then RL on tasks that are open",
        "`rft` by one who does both"),
    add_row("GOAT", "imitation", "goat", RECORDED,
        "chains of calls that were carried out, and the goals that they reach, written afterwards",
        "itself on random calls"),
    add_row("AgentGen", "imitation", "agent_gen", RECORDED,
        "plans in domains that are made, of tasks made easier and harder", "itself on one difficulty"),
    add_row("Chain-of-Agents / AFM", "imitation", "afm", RECORDED,
        "a team's run as one model's transcript, then RL", "itself without imitation", page="Chain-of-Agents"),
    add_row("STaR", "selftraining", "star", RECORDED,
        "right answers, and those that a hint led to, without the hint", "`rft`"),
    add_row("ReST", "selftraining", "rest", RECORDED,
        "one collection, imitated several times above rising thresholds", "`rft`"),
    add_row("ReST meets ReAct", "selftraining", "rest_react", RECORDED,
        "of every step the sample that a ranker without labels likes best", "`rft`"),
    add_row("Self-Rewarding LM", "selftraining", "self_rewarding", RECORDED,
        "of its own answers the one that it judges best against the worst, round by round",
        "itself, a round earlier"),
    add_row("AgentGym / AgentEvol", "selftraining", "agent_evol", RECORDED,
        "successes and the demonstrations together, each time from the base model", "`sft`, `rft`", page="AgentEvol"),
    add_row("ReST-MCTS*", "selftraining", "rest_mcts", RECORDED,
        "solutions of tree search, under a value model that earlier trees have taught", "`rest`"),
    add_row("EXIF", "selftraining", "exif", RECORDED,
        "what exploring reached, as the task that asks for it; next what was not mastered",
        "itself without feedback"),
    add_row("Agent0", "selftraining", "agent0", RECORDED,
        "tasks at the edge of what is known, and the majority's answer for the truth", "`grpo` on true outcomes"),
    add_row("NAT (Learning From Failure)", "preference", "nat", RECORDED,
        "failures beside successes, each under its label", "`sft` on successes", page="NAT"),
    add_row("ETO", "preference", "eto", RECORDED,
        "the expert's episode against one's own failure, round by round", "`sft`, `rft`"),
    add_row("IPR (Watch Every Step)", "preference", "ipr", RECORDED,
        "the expert's step against one's own, by what the start makes of both", "`eto`", page="IPR"),
    add_row("Agent Q", "preference", "agent_q", RECORDED,
        "children of one node of a search tree, by outcomes and a critic's ranks", "`eto`, `rft`"),
    add_row("Agent-R", "preference", "agent_r", RECORDED,
        "the way back from one's first mistake, found in a tree and carried out", "`rft`"),
    add_row("E2CL", "preference", "e2cl", RECORDED,
        "what would come of a draft is foretold, and errors are mended before they are made", "`rft`"),
    add_row("DMPO", "preference", "dmpo", RECORDED,
        "early turns weigh most in the comparison of two episodes", "`dpo`"),
    add_row("M-DPO / M-KTO", "preference", "m_dpo", RECORDED,
        "solved against unsolved episodes in rounds, observations left out", "`dpo` on observations, too",
        page="M-DPO and M-KTO"),
    add_row("PGPO", "preference", "pgpo", RECORDED,
        "plans in pseudo-code, preferred where they lead further and can be followed", "`ipr`"),
    add_row("RRO", "preference", "rro", RECORDED,
        "next steps drawn until one is worth more than the step before", "`ipr`, fixed draws"),
    add_row("StepAgent", "preference", "step_agent", RECORDED,
        "the expert's step against one's own in the same state, as a preference or paid by a discriminator", "`eto`"),
    add_row("DPO", "preference", "dpo", RECORDED,
        "the better of two episodes against the worse", "logistic loss on log-ratios", page="Preference (dpo)"),
    add_row("SWEET-RL / ColBench", "preference", "sweet_rl", RECORDED,
        "turns ranked by a critic that is told what the policy does not see", "`m_dpo`, `rft`", page="SWEET-RL"),
    add_row("DITS", "preference", "dits", RECORDED,
        "pairs of a search chosen by what one update on them changes", "all pairs, by value alone"),
    add_row("OWL", "preference", "owl", RECORDED,
        "the planner of a workforce, whose workers can be exchanged", "`sft`"),
    add_row("Optima", "preference", "optima", RECORDED,
        "several seats that solve a task in fewer tokens, and stay readable", "`rft`"),
    add_row("MPO (meta plans)", "preference", "mpo", RECORDED,
        "plans that help an actor at rest against plans that do not", "`sft`", page="MPO"),
    add_row("Deep RL from Human Preferences", "rlhf", "human_preferences", RECORDED,
        "segments are compared, rewards learned of it, PPO on these, again", "`ppo`"),
    add_row("Learning to Summarize", "rlhf", "learning_to_summarize", RECORDED,
        "PPO on a reward model of comparisons, its KL to the start paid by token",
        "the supervised policy, best of n"),
    add_row("InstructGPT", "rlhf", "instruct_gpt", RECORDED,
        "PPO on a reward model of rankings, with a likelihood of other data in every gradient",
        "PPO, the supervised policy"),
    add_row("WebGPT", "rlhf", "web_gpt", RECORDED,
        "browsing with quotes: a reward model with ties, the best of n by it, and PPO on it",
        "the cloned policy, the best of n"),
    add_row("PG, PPO, GRPO, REINFORCE++", "rl", "grpo", GROUPS,
        "the outcome relative to the group, clipped ratio", "`rft`", page="GRPO"),
    add_row("RAGEN / StarPO", "rl", "starpo", RETURNS,
        "uncertain groups only, bi-level estimation, signals of collapse", "itself", page="RAGEN, StarPO-S"),
    add_row("GiGPO", "rl", "gigpo", TURNS,
        "actions compared where episodes of a task meet the same state", "`grpo`"),
    add_row("MT-GRPO (turn-level credit)", "rl", "mt_grpo", TURNS,
        "rewards of turns beside the outcome", "`grpo`", page="MT-GRPO"),
    add_row("SPA-RL", "rl", "spa_rl", TURNS,
        "an outcome divided over the turns that made progress", "`ppo`"),
    add_row("PAG", "rl", "pag", TURNS,
        "two roles, whitened each by itself", "itself"),
    add_row("muCode", "rl", "mucode", SINGLE,
        "the best answer any episode gave, imitated in every state", "itself"),
    add_row("EPO", "rl", "epo", SINGLE,
        "turns imitated in proportion to what they were worth", "itself"),
    add_row("LOOP", "rl", "loop", GROUPS,
        "leave-one-out, clip per token, two epochs", "`rloo`"),
    add_row("UI-R1", "rl", "ui_r1", SINGLE,
        "one action each on a few hard tasks", "`sft`"),
    add_row("CoSo", "rl", "coso", EXPLORATION,
        "entropy where a token decides the action", "itself"),
    add_row("LLMs are Greedy Agents", "rl", "greedy", EXPLORATION,
        "a bonus for what is untried, or all tried first", "`sft`, itself", page="Greedy agents"),
    add_row("GLAM", "rl", "glam", CHOICES,
        "a softmax over the log-probs of whole actions", "`ppo`"),
    add_row("TWOSOME", "rl", "twosome", CHOICES,
        "the same per word, PPO over turns", "itself"),
    add_row("ToolRL", "rl", "toolrl", TOOLS,
        "calls compared field by field", "itself"),
    add_row("OTC", "rl", "otc", TOOLS,
        "few calls count, where the answer is right", "`grpo`"),
    add_row("Tricks or Traps / Lite PPO", "rl", "lite_ppo", GROUPS,
        "mean of the group, deviation of the batch", "`grpo`", page="Lite PPO"),
    add_row("Demystifying agentic RL", "rl", "grpo_tcr", GROUPS,
        "tasks chosen for the model, shaped outcome", "`grpo`", page="Demystifying, GRPO-TCR"),
    add_row("RLSP", "rl", "rlsp", EXPLORATION,
        "a reward for searching beside the outcome", "itself"),
    add_row("UI-TARS-2", "rl", "ui_tars2", RETURNS,
        "a critic first, λ by length, two λ", "`ppo`"),
    add_row("AgentGym-RL / ScalingInter", "rl", "scaling_inter", GROUPS,
        "longer episodes by stages", "`grpo`", page="ScalingInter-RL"),
    add_row("OpenManus-RL", "rl", "openmanus", TURNS,
        "the same two levels, sampled until groups differ", "`gigpo`"),
    add_row("MetaSpatial", "rl", "metaspatial", TURNS,
        "attempts at one layout, discounted", "itself with one attempt, `sft`"),
    add_row("SWiRL", "rl", "swirl", SINGLE,
        "one action on recorded contexts, judged by itself", "`sft`, itself"),
    add_row("Short thinking, more acting", "rl", "act_more", EXPLORATION,
        "new states earn, long turns cost", "`scaling_inter` with single turns"),
    add_row("ArCHer", "critic", "archer", REPLAYED,
        "a critic of whole turns from a buffer, and turns said anew at its states", "`ppo`"),
    add_row("DigiRL", "critic", "digi_rl", REPLAYED,
        "imitates the turns that raised the chance of success, offline and then online", "`rft`, `archer`"),
    add_row("Digi-Q", "critic", "digi_q", REPLAYED,
        "Q on frozen features from a log, and the best of N turns by it imitated", "`rft`"),
    add_row("WebRL", "critic", "web_rl", REPLAYED,
        "regression of log-ratios to advantages, on tasks like failures that are neither solved nor hopeless",
        "`rft`, `digi_rl`"),
    add_row("MoE dialogue management", "critic", "moe_dialogue", REPLAYED,
        "a manager with a Q over what several experts would say", "the best blind mixture, `ppo`"),
    add_row("RLAdapter", "critic", "rladapter", REPLAYED,
        "what to tell an adviser, so that a frozen agent gets sub-goals that help", "a fixed message"),
    add_row("Search-R1", "toolrl", "search_r1", TOOLBOXES,
        "thinks, searches, answers; learns from right answers alone, and from no retrieved token",
        "GRPO that learns what was retrieved"),
    add_row("R1-Searcher", "toolrl", "r1_searcher", TOOLBOXES,
        "first paid for searching, then for answers", "the second stage alone"),
    add_row("ReSearch", "toolrl", "research", TOOLBOXES,
        "F1 of the answer, or a little for its form", "`search_r1`"),
    add_row("ASearcher", "toolrl", "asearcher", TOOLBOXES,
        "asynchronous search over many turns, with stale tokens weighed; questions made harder and checked",
        "`grpo`"),
    add_row("ReTool", "toolrl", "retool", TOOLBOXES,
        "traces of words rewritten to code are imitated, then PPO by the answer alone", "`ppo`"),
    add_row("ToRL", "toolrl", "torl", TOOLBOXES,
        "tools are found by RL, with a cap on the calls of an answer", "RL without tools"),
    add_row("Agent RFT", "toolrl", "agent_rft", TOOLBOXES,
        "tools and a grader behind endpoints; failures are excluded, never scored 0", "itself, without penalties"),
    Entry("Search-o1", "toolrl", "written", name="search_o1", page="Search-o1", section=TOOLBOXES,
        about="a harness: documents are condensed before they enter the chain", against="documents as they are"),
    add_row("Agent model / Deep Research", "toolrl", "deep_research", TOOLBOXES,
        "one policy that browses, notes and reports, and pays for every look", "`grpo`",
        page="Agent models, Deep Research"),
    add_row("DARE", "toolrl", "dare", TOOLBOXES,
        "an embedder that finds the tool which fits the data, not the words alone", "BM25"),
    Entry("MemAgent", "horizon", "written"),
    Entry("MEM1", "horizon", "written"),
    Entry("Plan-and-Act", "horizon", "written"),
    Entry("PilotRL / AdaPlan", "horizon", "planned"),
    Entry("TTI (Thinking vs Doing)", "horizon", "planned"),
    Entry("AGILE", "horizon", "planned"),
    Entry("Memento (AgentFly)", "horizon", "planned"),
    Entry("Reflexion", "horizon", "written"),
    Entry("Trained planner / router", "horizon", "planned"),
    Entry("MARFT", "multiagent", "planned"),
    Entry("Dr. MAS", "multiagent", "planned"),
    Entry("MARTI", "multiagent", "planned"),
    Entry("M3HF", "multiagent", "planned"),
    Entry("iAgents", "multiagent", "planned"),
    Entry("LIET", "multiagent", "planned"),
    Entry("MUA-RL", "multiagent", "planned"),
    Entry("tau-bench", "multiagent", "planned"),
    Entry("ToolChain*", "search", "planned"),
    Entry("SE-Agent", "search", "planned"),
    Entry("AutoMind", "search", "planned"),
    Entry("ARIES", "search", "planned"),
    Entry("RL of Thoughts", "search", "planned"),
    Entry("WebCoT", "search", "planned"),
    Entry("BacktrackAgent", "search", "planned"),
    Entry("WebRollback", "search", "planned"),
    Entry("GuidNav", "search", "planned"),
    Entry("RLM blueprint / x1", "search", "planned"),
    Entry("ReAct", "agents", "written"),
    Entry("CodeAct", "agents", "written"),
    Entry("CaveAgent", "agents", "written"),
    Entry("DynaSaur", "agents", "written"),
    Entry("PoAct", "agents", "planned"),
    Entry("AgentOccam", "agents", "written"),
    Entry("ALIGN", "agents", "planned"),
    Entry("RCI", "agents", "written"),
    Entry("Youtu-Agent (practice)", "agents", "planned"),
    Entry("AutoFlow", "agents", "planned"),
    Entry("text2api and Reflexion", "agents", "planned"),
    Entry("LLM-Agent-UMF", "agents", "planned"),
    Entry("Parrot", "agents", "planned"),
    Entry("EnvGen", "synthesis", "planned"),
    Entry("MAG-V", "synthesis", "planned"),
    Entry("Progent", "safety", "planned"),
    Entry("AgentPoison", "safety", "planned"),
    Entry("LTL behaviour specification", "safety", "planned"),
    Entry("Agentable", "safety", "planned"),
    Entry("EU-Agent-Bench", "safety", "planned"),
    Entry("BFCL", "evaluation", "planned"),
    Entry("AgentIssue-Bench", "evaluation", "planned"),
    Entry("RExBench", "evaluation", "planned"),
    Entry("AgentIF-OneDay", "evaluation", "planned"),
    Entry("Unified multi-task agentic RL", "infra", "planned"),
    Entry("verl, OpenRLHF, TRL, ms-swift", "infra", "planned"),
    Entry("Beyond Single-Turn", "surveys", "planned"),
    Entry("Meta-Thinking via MARL", "surveys", "planned"),
    Entry("Landscape of agentic RL", "surveys", "planned"),
    Entry("LLM-based autonomous agents", "surveys", "planned"),
    Entry("RL-based agentic search", "surveys", "planned"),
    Entry("LLM agents for SE", "surveys", "planned"),
    Entry("Optimisation of LLM agents", "surveys", "planned"),
    Entry("RL techniques for LLMs", "surveys", "planned"),
    Entry("Agentic issue resolution", "surveys", "planned"),
    Entry("Goal-directed systems", "surveys", "planned"),
    Entry("The blog's lessons", "surveys", "planned"),
    # building blocks and variants, which are no rows of their own
    add_row("CISPO", "rl", "cispo", GROUPS,
        "the weight is clipped, never the token", "`grpo`", is_row=False),
    add_row("DAPO", "rl", "dapo", GROUPS,
        "clip-higher, dynamic sampling, mean over tokens, overlong shaping", "`grpo`", is_row=False),
    add_row("Dr. GRPO", "rl", "dr_grpo", GROUPS,
        "no deviation, a constant instead of an episode's length", "`grpo`", is_row=False),
    add_row("GSPO", "rl", "gspo", GROUPS,
        "one ratio per sequence (or turn)", "`grpo`", is_row=False),
    add_row("Any credit, any loss", "rl", "policy_gradient", ANY,
        "any idea of credit with any policy loss, by name", is_row=False),
    add_row("PPO", "rl", "ppo", RETURNS,
        "a value head and generalised advantage estimation", "`reinforce`", is_row=False),
    add_row("REINFORCE", "rl", "reinforce", RETURNS,
        "reward-to-go and a baseline", "itself", is_row=False),
    add_row("REINFORCE++", "rl", "reinforce_plus_plus", RETURNS,
        "whitened returns with the KL as a reward", "`reinforce`", is_row=False),
    add_row("Rejection sampling (rft)", "selftraining", "rft", RECORDED,
        "every token of a successful episode counts the same", "negative log-likelihood", is_row=False),
    add_row("RLOO", "rl", "rloo", GROUPS,
        "the mean of the other episodes as baseline, no clip", "`reinforce`", is_row=False),
    add_row("Imitation (sft)", "imitation", "sft", RECORDED,
        "every token of the expert counts the same", "negative log-likelihood", is_row=False),
    add_row("Reward model", "rlhf", "reward_model", RECORDED,
        "scores episodes as people, or a labeller, rank them", "`instruct_gpt`, which learns from one",
        page="Reward models", is_row=False),
    add_row("VinePPO", "rl", "vine", RETURNS,
        "values by playing on from each state", "`ppo`", is_row=False),
    Entry("Quickstart", "rl", "written", name="quickstart", module="quickstart",
        about="GRPO with the settings of the first run", is_row=False),
    Entry("Quickstart with a real model", "rl", "written", name="quickstart-real", module="quickstart_real",
        about="GRPO with the settings of the first run of a pretrained model", is_row=False),
)  # fmt: skip
MODULES: dict[str, str] = {
    entry.name: f"quintain.methods.{entry.module}"
    for entry in sorted(TABLE, key=lambda entry: entry.name)
    if entry.module
}
"""name → module, of those that train"""


def method_entry_points() -> "list[EntryPoint]":
    """Return the methods that installed packages bring, by name."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda point: point.name)
