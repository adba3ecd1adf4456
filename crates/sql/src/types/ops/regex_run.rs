//! Running a regular expression in bounded steps.
//!
//! ```text
//! states * bytes of text <= MOST_AT_ONCE   the regex crate's engines, which cannot be interrupted: one search has a limit
//! more                                     a machine of our own over the same automaton, which looks for a cancel as it goes
//! ```
//! The machine is Pike's: all alternatives step through the text together, in the order of their preference, each with the places of its
//! groups. Its time grows with states times bytes, as does the worst case of the others; they are several times faster where they may run.
//!
//! Left out on purpose: a lazily built deterministic automaton that can be interrupted, for long texts and short patterns.

use base::cancel::{check_cancelled, work};
use base::{Error, Result, SqlState};
use regex::Regex;
use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;
use std::cell::OnceCell;
use std::ops::{ControlFlow, Range};

/// States times bytes that one search may take without a check: some tenths of a second at the very worst, a few milliseconds as a rule.
const MOST_AT_ONCE: usize = 32 << 20;
/// Bytes of an automaton that is surely small, and more states than it has.
const SMALL: usize = 64 << 10;
const SMALL_STATES: usize = 4096;
/// Bytes of the greatest automaton.
const LARGEST: usize = 8 << 20;

/// How a pattern is read by the library.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syntax {
    pub ignore_case: bool,
    pub dot_matches_newline: bool,
    pub multi_line: bool,
    pub expanded: bool,
}

/// Where a match and each of its groups stand, in bytes.
pub type Groups = [Option<Range<usize>>];

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    /// The automaton has fewer than [`SMALL_STATES`].
    small: bool,
    /// What the machine runs, made when a text is long.
    source: (String, Syntax),
    nfa: OnceCell<NFA>,
    /// Always the machine: for tests.
    stepwise: bool,
}

impl Pattern {
    /// Compiles; the error is the library's.
    pub fn new(pattern: &str, syntax: Syntax) -> std::result::Result<Pattern, regex::Error> {
        let build = |limit| {
            regex::RegexBuilder::new(pattern)
                .case_insensitive(syntax.ignore_case)
                .dot_matches_new_line(syntax.dot_matches_newline)
                .multi_line(syntax.multi_line)
                .ignore_whitespace(syntax.expanded)
                .size_limit(limit)
                .build()
        };
        let (regex, small) = match build(SMALL) {
            Err(regex::Error::CompiledTooBig(_)) => (build(LARGEST)?, false),
            r => (r?, true),
        };
        Ok(Pattern {
            regex,
            small,
            source: (pattern.to_owned(), syntax),
            nfa: OnceCell::new(),
            stepwise: false,
        })
    }

    fn nfa(&self) -> Result<&NFA> {
        if let Some(n) = self.nfa.get() {
            return Ok(n);
        }
        let (pattern, s) = &self.source;
        let syntax = regex_automata::util::syntax::Config::new()
            .case_insensitive(s.ignore_case)
            .dot_matches_new_line(s.dot_matches_newline)
            .multi_line(s.multi_line)
            .ignore_whitespace(s.expanded);
        let nfa = NFA::compiler().syntax(syntax).build(pattern);
        let nfa = nfa.map_err(|e| {
            Error::new(
                SqlState::INVALID_REGULAR_EXPRESSION,
                format!("invalid regular expression: {e}"),
            )
        })?;
        Ok(self.nfa.get_or_init(|| nfa))
    }

    /// The automaton that has to run in steps over this text; none: the library may do it at once.
    fn in_steps(&self, text: &str) -> Result<Option<&NFA>> {
        if self.stepwise {
            return self.nfa().map(Some);
        }
        if self.small && text.len() <= MOST_AT_ONCE / SMALL_STATES {
            return Ok(None);
        }
        let nfa = self.nfa()?;
        let cost = nfa.states().len().saturating_mul(text.len());
        Ok((cost > MOST_AT_ONCE).then_some(nfa))
    }

    /// Whether the text has a match.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        match self.in_steps(text)? {
            None => {
                work(text.len())?;
                Ok(self.regex.is_match(text))
            }
            Some(nfa) => Ok(Machine::new(nfa, 2).search(text, 0)?.is_some()),
        }
    }

    /// The first match and its groups.
    pub fn first(&self, text: &str) -> Result<Option<Vec<Option<Range<usize>>>>> {
        let mut found = None;
        self.each(text, true, |g| {
            found = Some(g.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }

    /// Calls `f` for each match from left to right until it breaks. Without `groups` the match alone is given. A match that is empty
    /// and follows the one before it is none.
    pub fn each(
        &self,
        text: &str,
        groups: bool,
        mut f: impl FnMut(&Groups) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        match self.in_steps(text)? {
            None if groups => {
                let mut all: Vec<Option<Range<usize>>> = Vec::new();
                for c in self.regex.captures_iter(text) {
                    check_cancelled()?;
                    all.clear();
                    all.extend(c.iter().map(|g| g.map(|m| m.range())));
                    if f(&all)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            None => {
                for m in self.regex.find_iter(text) {
                    check_cancelled()?;
                    if f(&[Some(m.range())])?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Some(nfa) => {
                let slots = if groups {
                    nfa.group_info().slot_len()
                } else {
                    2
                };
                let mut machine = Machine::new(nfa, slots);
                let (mut at, mut last) = (0, None);
                while at <= text.len() {
                    let Some(slots) = machine.search(text, at)? else {
                        break;
                    };
                    let found: Vec<Option<Range<usize>>> = slots
                        .chunks_exact(2)
                        .map(|p| (p[1] != NOWHERE).then_some(p[0]..p[1]))
                        .collect();
                    let m = found[0].clone().expect("a match has a place");
                    if m.is_empty() && last == Some(m.end) {
                        at = after(text, m.end);
                        continue;
                    }
                    (at, last) = (m.end, Some(m.end));
                    if f(&found)?.is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The place after the character at `at`.
fn after(text: &str, at: usize) -> usize {
    let c = text[at..].chars().next();
    at + c.map_or(1, char::len_utf8)
}

/// A group that took no part.
const NOWHERE: usize = usize::MAX;

/// States that alternatives stand in, in the order of preference, each once.
struct Threads {
    states: Vec<StateID>,
    /// Of each state: its place in `states`, if that place names it.
    place: Vec<u32>,
    /// The slots of each place.
    slots: Vec<usize>,
}

impl Threads {
    fn new(states: usize) -> Threads {
        Threads {
            states: Vec::new(),
            place: vec![0; states],
            slots: Vec::new(),
        }
    }

    fn has(&self, s: StateID) -> bool {
        self.states.get(self.place[s.as_usize()] as usize) == Some(&s)
    }

    fn clear(&mut self) {
        self.states.clear();
        self.slots.clear();
    }
}

/// What is still to be done while the states that need no character are followed.
enum Todo {
    Go(StateID),
    /// The slot had this value before the alternative was entered.
    Put(usize, usize),
}

struct Machine<'n> {
    nfa: &'n NFA,
    /// Slots that are kept: two for each group.
    kept: usize,
    now: Threads,
    next: Threads,
    todo: Vec<Todo>,
    /// The slots of the alternative that is followed.
    slots: Vec<usize>,
}

impl<'n> Machine<'n> {
    fn new(nfa: &'n NFA, kept: usize) -> Machine<'n> {
        let n = nfa.states().len();
        Machine {
            nfa,
            kept,
            now: Threads::new(n),
            next: Threads::new(n),
            todo: Vec::new(),
            slots: vec![NOWHERE; kept],
        }
    }

    /// The slots of the first match at or after byte `from`, which is where a character begins.
    fn search(&mut self, text: &str, from: usize) -> Result<Option<Vec<usize>>> {
        let bytes = text.as_bytes();
        let mut found: Option<Vec<usize>> = None;
        self.now.clear();
        self.next.clear();
        for at in from..=bytes.len() {
            if self.now.states.is_empty() && found.is_some() {
                break;
            }
            // A match that begins later is less preferred than all that began before.
            if found.is_none() && text.is_char_boundary(at) {
                self.slots.fill(NOWHERE);
                self.follow(false, self.nfa.start_anchored(), bytes, at)?;
            }
            work(1 + self.now.states.len())?;
            for i in 0..self.now.states.len() {
                let s = self.now.states[i];
                let to = match self.nfa.state(s) {
                    State::ByteRange { trans } => {
                        let hit = bytes.get(at).is_some_and(|b| trans.matches_byte(*b));
                        hit.then_some(trans.next)
                    }
                    State::Sparse(t) => bytes.get(at).and_then(|b| t.matches_byte(*b)),
                    State::Dense(t) => bytes.get(at).and_then(|b| t.matches_byte(*b)),
                    State::Match { .. } => {
                        let place = i * self.kept..(i + 1) * self.kept;
                        found = Some(self.now.slots[place].to_vec());
                        // What is preferred less cannot win any more.
                        break;
                    }
                    _ => None,
                };
                if let Some(to) = to {
                    let place = i * self.kept..(i + 1) * self.kept;
                    self.slots.copy_from_slice(&self.now.slots[place]);
                    self.follow(true, to, bytes, at + 1)?;
                }
            }
            std::mem::swap(&mut self.now, &mut self.next);
            self.next.clear();
        }
        Ok(found)
    }

    /// Adds the states that are reached from `s` without a character, in the order of preference.
    fn follow(&mut self, next: bool, s: StateID, bytes: &[u8], at: usize) -> Result<()> {
        let list = if next { &mut self.next } else { &mut self.now };
        self.todo.push(Todo::Go(s));
        while let Some(todo) = self.todo.pop() {
            work(1)?;
            let s = match todo {
                Todo::Go(s) => s,
                Todo::Put(slot, value) => {
                    self.slots[slot] = value;
                    continue;
                }
            };
            if list.has(s) {
                continue;
            }
            list.place[s.as_usize()] = list.states.len() as u32;
            list.states.push(s);
            list.slots.extend_from_slice(&self.slots);
            match self.nfa.state(s) {
                State::Look { look, next } if self.nfa.look_matcher().matches(*look, bytes, at) => {
                    self.todo.push(Todo::Go(*next));
                }
                State::Look { .. } => {}
                State::Union { alternates } => {
                    self.todo
                        .extend(alternates.iter().rev().copied().map(Todo::Go));
                }
                State::BinaryUnion { alt1, alt2 } => {
                    self.todo.push(Todo::Go(*alt2));
                    self.todo.push(Todo::Go(*alt1));
                }
                State::Capture { next, slot, .. } => {
                    let slot = slot.as_usize();
                    if slot < self.kept {
                        self.todo.push(Todo::Put(slot, self.slots[slot]));
                        self.slots[slot] = at;
                    }
                    self.todo.push(Todo::Go(*next));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::cancel::{Interrupt, enter, looks};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn all(p: &Pattern, text: &str, groups: bool) -> Vec<Vec<Option<Range<usize>>>> {
        let mut out = Vec::new();
        p.each(text, groups, |g| {
            out.push(g.to_vec());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        out
    }

    #[test]
    fn the_machine_finds_what_the_library_finds() {
        let texts = [
            "",
            "a",
            "aaa",
            "foobarbequebaz",
            "äöü ß the cat",
            "one\ntwo\n\nthree",
            "ab ab abc",
            "12, 345;6",
        ];
        let patterns = [
            "",
            "a*",
            "a*?",
            "(a|ab)(c|bcd)?",
            "b(..)",
            r"\b",
            r"\bcat\b",
            "^",
            "$",
            "(?m)^.*$",
            "(?m)^",
            r"\w+",
            r"(\d+)[,;]?\s*",
            "(x)?",
            "ö|ü",
            "(?s).",
            "[^a]",
            "(a+)+$",
            "(?i)CAT|(bar)(beque)",
            r"\b{start}\w",
        ];
        for p in patterns {
            let fast = Pattern::new(p, Syntax::default()).unwrap();
            let mut slow = Pattern::new(p, Syntax::default()).unwrap();
            slow.stepwise = true;
            for t in texts {
                for groups in [false, true] {
                    assert_eq!(all(&slow, t, groups), all(&fast, t, groups), "{p} on {t:?}");
                }
                assert_eq!(slow.is_match(t).unwrap(), fast.is_match(t).unwrap());
            }
        }
    }

    #[test]
    fn a_long_search_looks_for_a_cancel_in_between() {
        let p = Pattern::new("(x+x+)+y(a?){3000}", Syntax::default()).unwrap();
        let text = "x".repeat(200_000);
        assert!(p.in_steps(&text).unwrap().is_some());
        assert!(p.in_steps("xxxx").unwrap().is_none());
        let flag = Arc::new(Interrupt::default());
        flag.0.store(Interrupt::CANCEL, Ordering::Relaxed);
        let _now = enter(flag);
        let before = looks();
        let e = p.is_match(&text).unwrap_err();
        assert_eq!(e.code(), SqlState::QUERY_CANCELED);
        assert_eq!(looks(), before + 1, "the first look ends it");
    }
}
