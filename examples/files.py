"""A small file system: find a file, read it, answer with the word in it. With an expert who does just that."""

import quintain
from quintain import Action, ToolCall

FOLDERS = ("home", "work", "music", "photos", "old")
FILES = ("notes", "list", "plan", "draft", "log", "keys")
WORDS = ("red", "green", "blue", "white", "black", "brown", "pink", "grey")


class Files(quintain.Environment):
    """Find the file that is asked for and answer with the word that stands in it."""

    max_turns = 12

    def __init__(self, *, folders: int = 3, files: int = 2) -> None:
        self.num_folders, self.num_files = folders, files

    def reset(self, task):
        names = task.rng.sample(FOLDERS, self.num_folders)
        files = task.rng.sample(FILES, self.num_files * self.num_folders)
        self.tree = {name: files[i :: self.num_folders] for i, name in enumerate(names)}
        self.words = {name: task.rng.choice(WORDS) for name in files}
        self.wanted = task.rng.choice(files)
        self.here, self.seen, self.is_found = "", set(), False
        return f"Which word is in the file {self.wanted}?"

    @quintain.tool
    def ls(self) -> str:
        """List what is here."""
        self.seen.add(self.here)
        return " ".join(self.tree[self.here] if self.here else self.tree)

    @quintain.tool
    def cd(self, folder: str) -> str:
        """Go into a folder; .. goes back."""
        if folder == ".." or (not self.here and folder in self.tree):
            self.here = "" if folder == ".." else folder
            return f"in /{self.here}"
        return f"there is no folder {folder} here"

    @quintain.tool
    def cat(self, file: str) -> str:
        """Read a file that is here."""
        if not self.here or file not in self.tree[self.here]:
            return f"there is no file {file} here"
        if file == self.wanted and not self.is_found:
            self.is_found = True
            self.reward(found=0.2)
        return self.words[file]

    @quintain.tool
    def answer(self, word: str) -> str:
        """Answer with the word; this ends the task."""
        is_right = word == self.words[self.wanted]
        return self.finish("right" if is_right else "wrong", reward=0.8 * is_right, success=is_right)

    def expert_action(self):
        name, arguments = self._next()
        return Action(tool_calls=(ToolCall(name=name, arguments=arguments),))

    def _next(self):
        if self.is_found:
            return "answer", {"word": self.words[self.wanted]}
        if self.here not in self.seen:
            return "ls", {}
        if self.here:
            return (
                ("cat", {"file": self.wanted})
                if self.wanted in self.tree[self.here]
                else ("cd", {"folder": ".."})
            )
        return "cd", {"folder": next((name for name in self.tree if name not in self.seen), self._home())}

    def _home(self):
        return next(name for name, files in self.tree.items() if self.wanted in files)


if __name__ == "__main__":
    quintain.train("grpo", environment=Files)
