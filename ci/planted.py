"""Copies of the workspace with changes in it, each behind a switch: ci/mutants and ci/mutation-sample use them."""
import collections
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
SOURCE = pathlib.Path("redlock-rt/src")


def workspace():
    """The files that git has or would take, by their names."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout.decode().split("\0")
    return {name: (ROOT / name).read_bytes() for name in listed if name and (ROOT / name).is_file()}


def write(copy, texts):
    """Makes `copy` have these files only. One that stays the same keeps its time, so that cargo does not build it."""
    for name, text in texts.items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != text:
            path.write_bytes(text)
    for old in copy.rglob("*"):
        if old.is_file() and str(old.relative_to(copy)) not in texts:
            old.unlink()


def cargo(copy, target, *words, **options):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), **options.pop("env", {}))
    return subprocess.run(["cargo", *words], cwd=copy, env=environment, **options)


# What follows puts a change that is given as "these characters become those" behind a switch. An expression
# becomes `(if ON { CHANGED } else { ORIGINAL })`, so its ends have to be known.

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\s+|(?P<token>b?r(?P<hash>\#*)".*?"(?P=hash)|[bc]?"(?:\\.|[^"\\])*"
    |b?'(?:\\[^']+|\\'|[^\\'])'|'\w+|\w+|=>|->|::|\.\.=?|&&|\|\||(?:<<|>>|[-+*/%^&|!=<>])=|.)""",
    re.DOTALL | re.VERBOSE,
)
CLOSES = {"(": ")", "[": "]", "{": "}"}
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<<=", ">>="}
HEADS = {"if", "while", "match", "in"}
BEFORE = ASSIGNS | HEADS | CLOSES.keys() | {",", ";", "=>", "->", ":", "|", "return", "else", "let", "move"}
AFTER = {"}", ")", "]", ",", ";", "=>", "else"}
# What may stand behind the brace of an operand; before anything else it ends a statement.
BEHIND_BRACE = {".", "?", "==", "!=", "&&", "||", "<", ">", "<=", ">=", "+", "/", "%", "as", ".."}


class Text:
    """A source file as tokens: their texts, places, and of each brace the other one."""

    def __init__(self, text):
        self.text = text
        found = [m for m in TOKEN.finditer(text) if m["token"]]
        self.tokens = [m["token"] for m in found]
        self.starts = [m.start() for m in found]
        self.ends = [m.end() for m in found]
        self.lines = [0] + [m.end() for m in re.finditer("\n", text)]
        self.other = {}
        open_ = []
        for index, token in enumerate(self.tokens):
            if token in CLOSES:
                open_.append(index)
            elif token in CLOSES.values():
                self.other[index] = open_.pop()
                self.other[self.other[index]] = index

    def span(self, span):
        """The characters of a span of cargo-mutants."""
        return tuple(self.lines[span[end]["line"] - 1] + span[end]["column"] - 1 for end in ("start", "end"))

    def body(self, function):
        """The characters between the braces of a function."""
        close = self.ends.index(self.span(function["span"])[1])
        return self.ends[self.other[close]], self.starts[close]

    def expression(self, operator):
        """The characters of the whole expression around an operator."""
        at = self.starts.index(operator)
        chain = "let" in self.to_the_block(at)
        first = at
        while first > 0 and not self.begins(first - 1, at, chain):
            first = self.other.get(first - 1, first - 1)
        head = chain or self.tokens[first - 1] in HEADS
        last = at + 1
        while self.tokens[last] not in AFTER | ASSIGNS and not (head and self.tokens[last] == "{"):
            if chain and self.tokens[last] == "&&":
                break
            last = self.other.get(last, last) + 1
        return self.starts[first], self.ends[last - 1]

    def begins(self, before, at, chain):
        """Whether an expression begins behind this token."""
        token, next_ = self.tokens[before], self.tokens[before + 1]
        if token == "||":
            return self.tokens[before - 1] in BEFORE
        if token == "}":
            return next_ not in BEHIND_BRACE
        return token in BEFORE or (chain and token == "&&")

    def to_the_block(self, at):
        """The tokens of the condition in which a token is, if it is one with `let`."""
        first = at
        while first > 0 and self.tokens[first - 1] not in CLOSES.keys() | {"if", "while", ";", "}", "=>", ","}:
            first = self.other.get(first - 1, first - 1)
        if self.tokens[first - 1] not in {"if", "while"}:
            return []
        last = at
        while self.tokens[last] not in AFTER | {"{"}:
            last = self.other.get(last, last) + 1
        return self.tokens[first:last]

    def literal(self, field):
        """The characters of the struct expression that has a field."""
        at = self.starts.index(field)
        while self.tokens[at := at - 1] != "{":
            at = self.other.get(at, at)
        first = at
        while re.match(r"\w+$|::$", self.tokens[first - 1]) and self.tokens[first - 1] not in BEFORE:
            first -= 1
        return self.starts[first], self.ends[self.other[at]]

    def arm(self, start):
        """Of a match arm: the characters of its pattern, and of its guard or None."""
        first = at = self.starts.index(start)
        guard = None
        while self.tokens[at] != "=>":
            if self.tokens[at] == "if" and guard is None:
                guard = at
            at = self.other.get(at, at) + 1
        if guard is None:
            return (self.starts[first], self.ends[at - 1]), None
        return (self.starts[first], self.ends[guard - 1]), (self.starts[guard + 1], self.ends[at - 1])


def edit(text, change, on, in_body):
    """(start, end, before, after): what to write around which characters. `in_body`: those of the function."""
    start, end = text.span(change["span"])
    genre = change["genre"]
    if genre == "FnValue":
        return start, end, f"if {on} {{ return {change['replacement']}; }} ", ""
    if in_body:
        around = text.body(change["function"])
    elif genre == "MatchArm":
        pattern, guard = text.arm(start)
        return (*guard, f"!{on} && (", ")") if guard else (*pattern, "", f" if !{on} ")
    elif genre == "MatchArmGuard":
        around = start, end
    elif genre == "StructField":
        around = text.literal(start)
        end += re.match(r"\s*,?", text.text[end:]).end()
    else:
        around = text.expression(start)
    changed = text.text[around[0]:start] + change["replacement"] + text.text[end:around[1]]
    before, after = f"if {on} {{ {changed} }} else {{ ", " }"
    return (*around, before, after) if in_body else (*around, "(" + before, after + ")")


def plant(text, edits):
    """The text with all edits, which are in each other or apart, and (start, end, key) of where each is in it."""
    marks = []
    for key, (start, end, before, after) in edits.items():
        size = end - start
        marks.append((start, 1, -size, key, before))
        marks.append((end, 0, size, key, after))
    # At one place the inner one ends first and begins last; of two around the same, in the order of the keys.
    marks.sort(key=lambda mark: (mark[0], mark[1], mark[2], mark[3] if mark[1] else -mark[3]))
    written, regions, began, at, size = [], [], {}, 0, 0
    for place, is_start, _, key, piece in marks:
        written += [text[at:place], piece]
        size += len(text[at:place].encode())
        if is_start:
            began[key] = size
        size += len(piece.encode())
        if not is_start:
            regions.append((began[key], size, key))
        at = place
    return "".join(written) + text[at:], regions


def is_of_tests(change):
    """Whether it is in the module of a file's unit tests, which is the last one."""
    text = (ROOT / change["file"]).read_text()
    tests = re.search(r"^#\[cfg\((all\()?test\b.*\]\nmod \w+ \{", text, re.MULTILINE)
    return bool(tests) and change["span"]["start"]["line"] > text.count("\n", 0, tests.start())


def cross(one, other):
    """Whether two places have a part in common, and each a part for itself."""
    return one[0] < other[0] < one[1] < other[1] or other[0] < one[0] < other[1] < one[1]


# The module of the switches, which are numbers here.
MODULE = """
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether this change is on: the environment names it. Notes, once, that the program came here.
pub(crate) fn on(number: usize) -> bool {
    static ON: LazyLock<Option<usize>> =
        LazyLock::new(|| std::env::var("REDLOCK_MUTANT").ok()?.parse().ok());
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    if !REACHED[number].load(Relaxed) && !REACHED[number].swap(true, Relaxed) {
        note(number);
    }
    *ON == Some(number)
}

/// At once and without an allocation: the process may be killed, and tests count allocations.
fn note(number: usize) {
    static TO: LazyLock<Option<std::ffi::OsString>> =
        LazyLock::new(|| std::env::var_os("REDLOCK_REACHED"));
    let Some(to) = &*TO else { return };
    let digit = |unit: usize| b'0' + u8::try_from(number / unit % 10).unwrap_or(0);
    let line = [digit(1000), digit(100), digit(10), digit(1), b'\\n'];
    let file = std::fs::OpenOptions::new().append(true).create(true).open(to);
    _ = file.and_then(|mut file| file.write_all(&line));
}
"""


def plant_all(texts, changes, in_body):
    """Plants `changes`, by their numbers, and returns by file the regions of them, and those without a place."""
    files = collections.defaultdict(dict)
    for number, change in changes.items():
        files[change["file"]][number] = change
    regions, misfits = {}, set()
    for file, those in files.items():
        text = Text(texts[file].decode())
        edits = {}
        for number, change in those.items():
            try:
                new = edit(text, change, f"crate::mutant::on({number})", number in in_body)
            except (ValueError, IndexError, KeyError):
                misfits.add(number)
                continue
            if any(cross(new, other) for other in edits.values()):
                misfits.add(number)
            else:
                edits[number] = new
        planted, regions[file] = plant(text.text, edits)
        texts[file] = planted.encode()
    lib = str(SOURCE / "lib.rs")
    texts[lib] = texts[lib].replace(b"mod limit;\n", b"mod limit;\nmod mutant;\n")
    texts[str(SOURCE / "mutant.rs")] = MODULE.replace("COUNT", str(max(changes) + 1)).encode()
    return regions, misfits


def blamed(message, regions):
    """The change that a compiler error is about: the innermost one at the first place that it names."""
    spans = sorted(message["spans"], key=lambda span: not span["is_primary"])
    for one in [*spans, *(span for child in message["children"] for span in child["spans"])]:
        while one:
            inside = [r for r in regions.get(one["file_name"], []) if r[0] <= one["byte_start"] <= r[1]]
            if inside:
                return {min(inside, key=lambda region: region[1] - region[0])[2]}
            one = one["expansion"] and one["expansion"]["span"]
    # Of a match that lacks an arm the head is named.
    behind = [r for one in spans for r in regions.get(one["file_name"], []) if r[0] > one["byte_start"]]
    return {min(behind)[2]} if behind else set()
