"""The one table of methods: what they are called, where their code is, what they are compared with, what is shown.

It makes the names that ``quintain train`` takes, the list of ``quintain methods``, and the tables of README, docs and
navigation (`docs/tables.py`). What is known of a method, in columns, is computed from its results, which are in
``evidence/``, and from its values: ``python docs/tables.py`` writes it into ``columns.json``, and nobody by hand.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

HERE = Path(__file__).parent
COLUMNS: dict[str, dict[str, Any]] = json.loads((HERE / "columns.json").read_text(encoding="utf-8"))
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
    """A method: ``Entry("GiGPO", "rl", name="gigpo", module="rl.gigpo", …)``."""

    title: str
    family: str
    """a room of methods, or ``surveys``: pages of what they name (docs/taxonomies.md), and no methods"""
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
LONG = "Long episodes and memory"
SINGLE = "Single steps and recorded contexts"
EXPLORATION = "Exploration, thought and length"
CHOICES = "Choosing among legal actions"
TOOLS = "Tools"
SAFETY = "Guards, and what they are held against"
AROUND = "Around a model that is not trained"
JUDGED = "Benchmarks"
ANY = "Any credit with any loss"
"""Sections of docs/methods/index.md."""

PURPOSES: dict[str, tuple[str, ...]] = {
    "There are recordings of good behaviour, or an expert": (
        "sft", "fireact", "agent_tuning", "agent_flan", "agent_bank", "atlas", "steca", "ire_vla", "world_of_bits",
        "plan_and_act", "webcot", "code_act",
    ),
    "An environment says whether a task is solved": (
        "grpo", "rloo", "loop", "dr_grpo", "dapo", "gspo", "cispo", "lite_ppo", "reinforce", "reinforce_plus_plus",
        "ppo", "starpo", "ui_tars2", "grpo_tcr", "scaling_inter", "policy_gradient",
        "agent_rl",
    ),
    "It succeeds now and then, and compute is little": (
        "rft", "star", "rest", "rest_react", "agent_evol", "rest_mcts", "androidgen", "pae", "paprika",
    ),
    "There are failures, or pairs of better and worse": (
        "nat", "dpo", "eto", "ipr", "dmpo", "m_dpo", "rro", "step_agent", "agent_r", "agent_q", "e2cl", "pgpo", "dits",
        "sweet_rl", "self_rewarding",
    ),
    "People judge what it does": (
        "reward_model", "human_preferences", "learning_to_summarize", "instruct_gpt", "web_gpt", "m3hf",
    ),
    "Episodes are long, and which turn it was is not told": (
        "gigpo", "openmanus", "mt_grpo", "spa_rl", "pag", "metaspatial", "vine", "mucode", "epo", "swirl", "agile",
        "mem_agent", "mem1", "tti", "pilot_rl", "backtrack", "x1",
    ),
    "Steps of the environment are dear, so that they are used again": ("archer", "digi_rl", "digi_q", "web_rl"),
    "It tries too little, or thinks too long": ("coso", "greedy", "rlsp", "act_more"),
    "What can be done is listed, or is a place on a screen": ("glam", "twosome", "ui_r1"),
    "It calls tools, and should call them rightly, or less": (
        "toolrl", "otc", "torl", "retool", "agent_rft", "dare",
    ),
    "It serves users, who have to be asked": ("mua_rl", "tau_bench"),
    "It searches in a corpus, or on the web": (
        "search_r1", "r1_searcher", "research", "asearcher", "search_o1", "deep_research",
    ),
    "It must not do what it could": (
        "progent", "ltl", "agentable", "agent_poison", "eu_agent_bench",
    ),
    "The model stays as it is, and what stands around it is to be better": (
        "reflexion", "memento", "practice", "generation", "dynasaur", "auto_flow", "align", "react", "text2api",
        "agent_umf", "toolchain", "se_agent", "automind", "web_rollback", "guidnav", "aries", "rci", "rlot",
        "cave_agent", "parrot", "agent_occam", "poact",
    ),
    "Several agents share a task": (
        "dr_mas", "marft", "marti", "iagents", "optima", "mpo", "owl", "afm", "autoglm", "rladapter", "moe_dialogue",
        "router", "liet",
    ),
    "An agent is to be measured as others are": ("bfcl", "agentissue", "rexbench", "agentif"),
    "Tasks or transcripts are to be made first": (
        "goat", "agent_gen", "xlam", "lam_simulator", "web_dancer", "exif", "agent0", "env_gen", "mag_v",
    ),
}  # fmt: skip
"""What somebody has or lacks → the methods for that, the plainest first; each method that has a page stands once."""


def add_row(
    title: str,
    family: str,
    name: str,
    section: str,
    against: str = "",
    *,
    page: str = "",
    module: str = "",
    is_row: bool = True,
) -> Entry:
    """Return a method that trains; its page is called as its title and its module FAMILY.NAME, unless it is said.

    What it is about is what the first line of its file says after its name.
    """
    home = module or f"{family}.{name}"
    with (HERE / f"{home.replace('.', '/')}.py").open(encoding="utf-8") as file:
        about = file.readline().partition(": ")[2].strip().strip('".')
    return Entry(
        title,
        family,
        name=name,
        module=home,
        page=page or title,
        section=section,
        about=about,
        against=against,
        is_row=is_row,
    )


TABLE: tuple[Entry, ...] = (
    add_row("FireAct", "imitation", "fireact", RECORDED, "one way"),
    add_row("AgentTuning / AgentLM", "imitation", "agent_tuning", RECORDED, "`sft`", page="AgentTuning"),
    add_row("ATLaS", "imitation", "atlas", RECORDED, "`sft`"),
    add_row("STeCa", "imitation", "steca", RECORDED, "`sft`"),
    add_row("Paprika", "imitation", "paprika", RECORDED, "`rft`, `dpo`"),
    add_row("iRe-VLA", "imitation", "ire_vla", RECORDED, "`ppo`, `sft`"),
    add_row("PAE", "imitation", "pae", RECORDED, "`rft`"),
    add_row("World of Bits", "imitation", "world_of_bits", RECORDED, "`sft`, `ppo`"),
    add_row("Agent-FLAN", "imitation", "agent_flan", RECORDED, "itself"),
    add_row("AgentBank / Samoyed", "imitation", "agent_bank", RECORDED, "itself", page="AgentBank"),
    add_row("xLAM", "imitation", "xlam", RECORDED, "schema validation alone"),
    add_row("LAM Simulator", "imitation", "lam_simulator", RECORDED, "itself without filters"),
    add_row("WebDancer", "imitation", "web_dancer", RECORDED, "itself without imitation"),
    add_row("AndroidGen", "imitation", "androidgen", RECORDED, "`rft`", module="selftraining.androidgen"),
    add_row("AutoGLM", "imitation", "autoglm", RECORDED, "`rft` by one who does both"),
    add_row("GOAT", "imitation", "goat", RECORDED, "itself on random calls"),
    add_row("AgentGen", "imitation", "agent_gen", RECORDED, "itself on one difficulty"),
    add_row("Chain-of-Agents / AFM", "imitation", "afm", RECORDED,
        "itself without imitation", page="Chain-of-Agents"),
    add_row("STaR", "selftraining", "star", RECORDED, "`rft`"),
    add_row("ReST", "selftraining", "rest", RECORDED, "`rft`"),
    add_row("ReST meets ReAct", "selftraining", "rest_react", RECORDED, "`rft`"),
    add_row("Self-Rewarding LM", "selftraining", "self_rewarding", RECORDED, "itself, a round earlier"),
    add_row("AgentGym / AgentEvol", "selftraining", "agent_evol", RECORDED, "`sft`, `rft`", page="AgentEvol"),
    add_row("ReST-MCTS*", "selftraining", "rest_mcts", RECORDED, "`rest`"),
    add_row("EXIF", "selftraining", "exif", RECORDED, "itself without feedback"),
    add_row("Agent0", "selftraining", "agent0", RECORDED, "`grpo` on true outcomes"),
    add_row("NAT (Learning From Failure)", "preference", "nat", RECORDED, "`sft` on successes", page="NAT"),
    add_row("ETO", "preference", "eto", RECORDED, "`sft`, `rft`"),
    add_row("IPR (Watch Every Step)", "preference", "ipr", RECORDED, "`eto`", page="IPR"),
    add_row("Agent Q", "preference", "agent_q", RECORDED, "`eto`, `rft`"),
    add_row("Agent-R", "preference", "agent_r", RECORDED, "`rft`"),
    add_row("E2CL", "preference", "e2cl", RECORDED, "`rft`"),
    add_row("DMPO", "preference", "dmpo", RECORDED, "`dpo`"),
    add_row("M-DPO / M-KTO", "preference", "m_dpo", RECORDED, "`dpo` on observations, too", page="M-DPO and M-KTO"),
    add_row("PGPO", "preference", "pgpo", RECORDED, "`ipr`"),
    add_row("RRO", "preference", "rro", RECORDED, "`ipr`, fixed draws"),
    add_row("StepAgent", "preference", "step_agent", RECORDED, "`eto`"),
    add_row("DPO", "preference", "dpo", RECORDED, "logistic loss on log-ratios", page="Preference (dpo)"),
    add_row("SWEET-RL / ColBench", "preference", "sweet_rl", RECORDED, "`m_dpo`, `rft`", page="SWEET-RL"),
    add_row("DITS", "preference", "dits", RECORDED, "all pairs, by value alone"),
    add_row("OWL", "preference", "owl", RECORDED, "`sft`"),
    add_row("Optima", "preference", "optima", RECORDED, "`rft`"),
    add_row("MPO (meta plans)", "preference", "mpo", RECORDED, "`sft`", page="MPO"),
    add_row("Deep RL from Human Preferences", "rlhf", "human_preferences", RECORDED, "`ppo`"),
    add_row("Learning to Summarize", "rlhf", "learning_to_summarize", RECORDED, "the supervised policy, best of n"),
    add_row("InstructGPT", "rlhf", "instruct_gpt", RECORDED, "PPO, the supervised policy"),
    add_row("WebGPT", "rlhf", "web_gpt", RECORDED, "the cloned policy, the best of n"),
    add_row("PG, PPO, GRPO, REINFORCE++", "rl", "grpo", GROUPS, "`rft`", page="GRPO"),
    add_row("RAGEN / StarPO", "rl", "starpo", RETURNS, "itself", page="RAGEN, StarPO-S"),
    add_row("GiGPO", "rl", "gigpo", TURNS, "`grpo`"),
    add_row("MT-GRPO (turn-level credit)", "rl", "mt_grpo", TURNS, "`grpo`", page="MT-GRPO"),
    add_row("SPA-RL", "rl", "spa_rl", TURNS, "`ppo`"),
    add_row("PAG", "rl", "pag", TURNS, "itself"),
    add_row("muCode", "rl", "mucode", SINGLE, "itself"),
    add_row("EPO", "rl", "epo", SINGLE, "itself"),
    add_row("LOOP", "rl", "loop", GROUPS, "`rloo`"),
    add_row("UI-R1", "rl", "ui_r1", SINGLE, "`sft`"),
    add_row("CoSo", "rl", "coso", EXPLORATION, "itself"),
    add_row("LLMs are Greedy Agents", "rl", "greedy", EXPLORATION, "`sft`, itself", page="Greedy agents"),
    add_row("GLAM", "rl", "glam", CHOICES, "`ppo`"),
    add_row("TWOSOME", "rl", "twosome", CHOICES, "itself"),
    add_row("ToolRL", "rl", "toolrl", TOOLS, "itself"),
    add_row("OTC", "rl", "otc", TOOLS, "`grpo`"),
    add_row("Tricks or Traps / Lite PPO", "rl", "lite_ppo", GROUPS, "`grpo`", page="Lite PPO"),
    add_row("Demystifying agentic RL", "rl", "grpo_tcr", GROUPS, "`grpo`", page="Demystifying, GRPO-TCR"),
    add_row("RLSP", "rl", "rlsp", EXPLORATION, "itself"),
    add_row("UI-TARS-2", "rl", "ui_tars2", RETURNS, "`ppo`"),
    add_row("AgentGym-RL / ScalingInter", "rl", "scaling_inter", GROUPS, "`grpo`", page="ScalingInter-RL"),
    add_row("OpenManus-RL", "rl", "openmanus", TURNS, "`gigpo`"),
    add_row("MetaSpatial", "rl", "metaspatial", TURNS, "itself with one attempt, `sft`"),
    add_row("SWiRL", "rl", "swirl", SINGLE, "`sft`, itself"),
    add_row("Short thinking, more acting", "rl", "act_more", EXPLORATION, "`scaling_inter` with single turns"),
    add_row("ArCHer", "critic", "archer", REPLAYED, "`ppo`"),
    add_row("DigiRL", "critic", "digi_rl", REPLAYED, "`rft`, `archer`"),
    add_row("Digi-Q", "critic", "digi_q", REPLAYED, "`rft`"),
    add_row("WebRL", "critic", "web_rl", REPLAYED, "`rft`, `digi_rl`"),
    add_row("MoE dialogue management", "critic", "moe_dialogue", REPLAYED, "the best blind mixture, `ppo`"),
    add_row("RLAdapter", "critic", "rladapter", REPLAYED, "a fixed message"),
    add_row("Search-R1", "toolrl", "search_r1", TOOLBOXES, "GRPO that learns what was retrieved"),
    add_row("R1-Searcher", "toolrl", "r1_searcher", TOOLBOXES, "the second stage alone"),
    add_row("ReSearch", "toolrl", "research", TOOLBOXES, "`search_r1`"),
    add_row("ASearcher", "toolrl", "asearcher", TOOLBOXES, "`grpo`"),
    add_row("ReTool", "toolrl", "retool", TOOLBOXES, "`ppo`"),
    add_row("ToRL", "toolrl", "torl", TOOLBOXES, "RL without tools"),
    add_row("Agent RFT", "toolrl", "agent_rft", TOOLBOXES, "itself, without penalties"),
    Entry("Search-o1", "toolrl", name="search_o1", page="Search-o1", section=TOOLBOXES,
        about="a harness: documents are condensed before they enter the chain", against="documents as they are"),
    add_row("Agent model / Deep Research", "toolrl", "deep_research", TOOLBOXES,
        "`grpo`", page="Agent models, Deep Research"),
    add_row("DARE", "toolrl", "dare", TOOLBOXES, "BM25"),
    add_row("MemAgent", "horizon", "mem_agent", LONG, "the answer trained alone"),
    add_row("MEM1", "horizon", "mem1", LONG, "a window of turns, `ppo`"),
    add_row("Plan-and-Act", "horizon", "plan_and_act", RECORDED, "plans in hindsight", page="Plan-and-Act"),
    add_row("PilotRL / AdaPlan", "horizon", "pilot_rl", LONG, "the same episodes in one stage", page="PilotRL"),
    add_row("TTI (Thinking vs Doing)", "horizon", "tti", LONG, "`rft`", page="TTI"),
    add_row("Memento (AgentFly)", "horizon", "memento", AROUND, "reading by likeness", page="Memento"),
    add_row("AGILE", "horizon", "agile", LONG, "itself, each question credited for itself"),
    Entry("Reflexion", "horizon", name="reflexion", page="Reflexion", section=AROUND,
        about="rounds of attempts: lessons of failed ones stand in the next prompt", against="plain retries"),
    add_row("Trained planner / router", "horizon", "router", LONG, "imitation of plans that worked",
        page="Trained planner"),
    add_row("MARFT", "multiagent", "marft", RETURNS, "`ppo` for each agent by itself"),
    add_row("Dr. MAS", "multiagent", "dr_mas", GROUPS, "`grpo` with one baseline for the team"),
    add_row("MARTI", "multiagent", "marti", TURNS, "itself with outcomes alone"),
    add_row("M3HF", "multiagent", "m3hf", RETURNS, "`ppo`, itself without tests"),
    Entry("iAgents", "multiagent", name="iagents", page="iAgents", section=AROUND,
        about="a harness: agents of several people talk, each with a plan of known and unknown facts and its own bank",
        against="a table of facts of the whole talk"),
    add_row("LIET", "multiagent", "liet", AROUND, "itself without steps to go", page="LIET"),
    add_row("MUA-RL", "multiagent", "mua_rl", TOOLS, "its start, imitation"),
    Entry("tau-bench", "multiagent", name="tau_bench", page="tau-bench and tau²", section=TOOLS,
        about="a benchmark: an agent with tools and a policy serves a user, who may have tools, too",
        against="a grader of one half"),
    Entry("ToolChain*", "search", name="toolchain", page="ToolChain*", section=AROUND,
        about="a search that goes on from where the way so far and what is imagined to be left cost least",
        against="best-first by samples alone"),
    Entry("SE-Agent", "search", name="se_agent", page="SE-Agent", section=AROUND,
        about="whole attempts at a task are recombined, refined and revised, and carried out again",
        against="as many plain attempts"),
    Entry("AutoMind", "search", name="automind", page="AutoMind", section=AROUND,
        about="a harness: solutions are drafted, debugged and improved in a tree, told what is known of such tasks",
        against="as many independent drafts"),
    Entry("ARIES", "search", name="aries", page="ARIES", section=AROUND,
        about="a harness: a policy sees a graph of thoughts and chooses what a solver does to it next",
        against="the best fixed schedule"),
    add_row("RL of Thoughts", "search", "rlot", AROUND, "the best fixed sequence of blocks"),
    add_row("WebCoT", "search", "webcot", RECORDED, "`sft` on the same searches without thoughts", page="WebCoT"),
    add_row("BacktrackAgent", "search", "backtrack", TURNS, "rules without a judge"),
    Entry("WebRollback", "search", name="web_rollback", page="WebRollback", section=AROUND,
        about="a harness: a critique of each state, then back to any visited one", against="always one step back"),
    Entry("GuidNav", "search", name="guidnav", page="GuidNav", section=AROUND,
        about="a harness: of several drafts the one is done that a process reward model likes best",
        against="what is drafted most"),
    add_row("RLM blueprint / x1", "search", "x1", TURNS, "best-first without back-ups", page="x1"),
    Entry("ReAct", "agents", name="react", page="ReAct", section=AROUND,
        about="a harness: a thought and an action in words, and chains of thought where acting brings no answer",
        against="acting without thoughts"),
    add_row("CodeAct", "agents", "code_act", RECORDED, "as many episodes of those that solve their task"),
    Entry("CaveAgent", "agents", name="cave_agent", page="CaveAgent", section=AROUND,
        about="data are variables of the code that a model writes, and its answer is an object: neither is printed",
        against="the same data printed in the prompt"),
    add_row("DynaSaur", "agents", "dynasaur", AROUND, "code as actions without a library"),
    Entry("PoAct", "agents", name="poact", page="PoAct", section=AROUND,
        about="a harness: a plan, thoughts and code take turns; code sees functions that fit, and is reviewed",
        against="the same choices, permuted within an episode"),
    Entry("AgentOccam", "agents", name="agent_occam", page="AgentOccam", section=AROUND,
        about="a harness: pages in fewer words, past ones by what was spoken of, and a tree of plans",
        against="as many words of the page at random"),
    add_row("ALIGN", "agents", "align", AROUND, "rules drawn at random, kept by the same race"),
    Entry("RCI", "agents", name="rci", page="RCI", section=AROUND,
        about="a harness: plans and actions are criticised and improved before anything is done",
        against="a critic that finds as much at random"),
    add_row("Youtu-Agent (practice)", "agents", "practice", AROUND, "as many edits from rewards dealt out anew",
        page="Youtu-Agent, practice"),
    add_row("Youtu-Agent, generation", "agents", "generation", AROUND, "the first that fits, untried",
        page="Youtu-Agent, generation", is_row=False),
    add_row("AutoFlow", "agents", "auto_flow", AROUND, "the same workflows by scores dealt out anew"),
    Entry("text2api and Reflexion", "agents", name="text2api", page="text2api", section=AROUND,
        about="wrong calls are named, not carried out, and told to the next attempt", against="plain retries"),
    Entry("LLM-Agent-UMF", "agents", name="agent_umf", page="LLM-Agent-UMF", section=AROUND,
        about="what an agent is made of, read off its name, and whether anything stands before its tools"),
    Entry("Parrot", "agents", name="parrot", page="Parrot", section=AROUND,
        about="an engine: a graph of calls at once, what prompts begin alike is read once, deep calls begin first",
        against="calls in the order in which they come"),
    add_row("EnvGen", "synthesis", "env_gen", GROUPS, "`grpo`"),
    Entry("MAG-V", "synthesis", name="mag_v", page="MAG-V", section=TOOLS,
        about="a verifier: a trajectory is right if what is asked back leads to the same",
        against="likeness of answers"),
    Entry("Progent", "safety", name="progent", page="Progent", section=SAFETY,
        about="a policy over tool calls: who may call what, with arguments that whom has said",
        against="a list of tools"),
    Entry("AgentPoison", "safety", name="agent_poison", page="AgentPoison", section=SAFETY,
        about="a search for words that make a memory find what an attacker put there, and defences",
        against="as many words at random"),
    Entry("LTL behaviour specification", "safety", name="ltl", page="LTL behaviour", section=SAFETY,
        about="a formula over what is done in which order: guard, filter and decoding that looks ahead",
        against="a mask that avoids what is wrong at once"),
    Entry("Agentable", "safety", name="agentable", page="Agentable", section=SAFETY,
        about="a lint of agents' sources: eight families of defects", against="patterns of lines"),
    Entry("EU-Agent-Bench", "safety", name="eu_agent_bench", page="EU-Agent-Bench", section=SAFETY,
        about="requests that can be met lawfully or not, by a rule for which silence is no lawful work",
        against="the official rule"),
    Entry("BFCL", "evaluation", name="bfcl", page="BFCL", section=JUDGED,
        about="the function calling leaderboard by its package's checkers", against="its own evaluator"),
    Entry("AgentIssue-Bench", "evaluation", name="agentissue", page="AgentIssue-Bench", section=JUDGED,
        about="issues of agents, mended by patches that hidden tests decide on", against="the visible tests alone"),
    Entry("RExBench", "evaluation", name="rexbench", page="RExBench", section=JUDGED,
        about="experiments to be extended, judged by their numbers in a fresh run on what was hidden",
        against="a run on what can be seen"),
    Entry("AgentIF-OneDay", "evaluation", name="agentif", page="AgentIF-OneDay", section=JUDGED,
        about="everyday work on files, judged by rubrics with penalties", against="rubrics of other tasks"),
    add_row("Unified multi-task agentic RL", "infra", "agent_rl", GROUPS, "one deviation for all environments",
        page="AgentRL, many environments", module="rl.agent_rl"),
    Entry("verl, OpenRLHF, TRL, ms-swift", "infra"),
    Entry("Beyond Single-Turn", "surveys"),
    Entry("Meta-Thinking via MARL", "surveys"),
    Entry("Landscape of agentic RL", "surveys"),
    Entry("LLM-based autonomous agents", "surveys"),
    Entry("RL-based agentic search", "surveys"),
    Entry("LLM agents for SE", "surveys"),
    Entry("Optimisation of LLM agents", "surveys"),
    Entry("RL techniques for LLMs", "surveys"),
    Entry("Agentic issue resolution", "surveys"),
    Entry("Goal-directed systems", "surveys"),
    Entry("The blog's lessons", "surveys"),
    # building blocks and variants, which are no rows of their own
    add_row("CISPO", "rl", "cispo", GROUPS, "`grpo`", is_row=False),
    add_row("DAPO", "rl", "dapo", GROUPS, "`grpo`", is_row=False),
    add_row("Dr. GRPO", "rl", "dr_grpo", GROUPS, "`grpo`", is_row=False),
    add_row("GSPO", "rl", "gspo", GROUPS, "`grpo`", is_row=False),
    add_row("Any credit, any loss", "rl", "policy_gradient", ANY, is_row=False),
    add_row("PPO", "rl", "ppo", RETURNS, "`reinforce`", is_row=False),
    add_row("REINFORCE", "rl", "reinforce", RETURNS, "itself", is_row=False),
    add_row("REINFORCE++", "rl", "reinforce_plus_plus", RETURNS, "`reinforce`", is_row=False),
    add_row("Rejection sampling (rft)", "selftraining", "rft", RECORDED, "negative log-likelihood", is_row=False),
    add_row("RLOO", "rl", "rloo", GROUPS, "`reinforce`", is_row=False),
    add_row("Imitation (sft)", "imitation", "sft", RECORDED, "negative log-likelihood", is_row=False),
    add_row("Reward model", "rlhf", "reward_model", RECORDED,
        "`instruct_gpt`, which learns from one", page="Reward models", is_row=False),
    add_row("VinePPO", "rl", "vine", RETURNS, "`ppo`", is_row=False),
    Entry("Quickstart", "rl", name="quickstart", module="quickstart",
        about="GRPO with the settings of the first run", is_row=False),
    Entry("Quickstart with a real model", "rl", name="quickstart-real", module="quickstart_real",
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
