//! Plain words, as far as a program can judge them: three mechanical rules over documents and over comments.
//!
//! | rule | finding |
//! |---|---|
//! | subject | "whoever", "nobody", "somebody", "anybody" and "he" anywhere; "who" where a noun is due |
//! | brackets | more than ten words between `(` and `)` |
//! | length | a sentence of more than 40 words |
//!
//! README, ARCHITECTURE, CHANGELOG and everything below `docs/` must be free of findings. Comments in Rust files are counted
//! for each crate, and `prose.txt` holds the number that a crate may not pass. So it does for an older document that is not
//! free yet. The numbers in that list may only fall. A count has to be lowered once it stands ten above the truth, so that
//! not every edit of a comment touches the list.
//!
//! A text is read in pieces: a paragraph, a heading, an item of a list, a cell of a table. Code spans count as one word, the
//! target of a link as none, and a block of code is passed over.
//!
//! Left out on purpose: grammar, style and spelling. A reader judges those. The dated pages of `docs/results` are records of
//! a day, written by `cargo xtask bench`; only their index is read.

use super::{Finding, Tree};
use std::collections::BTreeMap;

const LIST: &str = "xtask/src/tidy/prose.txt";

/// Words in one sentence.
const LONGEST_SENTENCE: usize = 40;
/// Words between brackets.
const LONGEST_BRACKET: usize = 10;
/// A number in the list may stand this far above the truth.
const SLACK: usize = 10;

/// Words that hide the noun wherever they stand.
const NO_NOUN: &[&str] = &[
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "someone",
    "anybody",
    "everybody",
    "he",
    "him",
    "his",
];
/// "who" after one of these has no noun before it.
const BEFORE_WHO: &[&str] = &[
    "for", "of", "by", "to", "from", "with", "and", "or", "than", "as", "is", "says", "tells",
];

/// A piece of prose and the line (from 1) on which each of its words stands.
#[derive(Debug, Default)]
struct Piece {
    words: Vec<(usize, String)>,
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let listed = tree.get(LIST).map_or("", |f| &f.text);
    let mut counts = counts(tree);
    for file in tree.with_extension("md").filter(|f| is_read(&f.path)) {
        let found = judge(&file.path, &document(&file.text));
        let open = format!("{} ", file.path);
        if listed.lines().any(|line| line.starts_with(&open)) {
            counts.insert(file.path.clone(), found.len());
        } else {
            findings.extend(found);
        }
    }
    findings.extend(ratchet(listed, &counts));
    findings
}

/// Every finding, those of comments too, and then the list as it would have to stand today.
pub fn print(tree: &Tree) {
    for file in tree.with_extension("rs") {
        for f in judge(&file.path, &comments(&file.text)) {
            println!("{}:{}: {}", f.path, f.line, f.what);
        }
    }
    for (house, count) in counts(tree) {
        println!("{house} {count}");
    }
}

/// Whether a document must be free of findings.
fn is_read(path: &str) -> bool {
    let record = path.starts_with("docs/results/") && path != "docs/results/README.md";
    (!path.contains('/') || path.starts_with("docs/")) && !record
}

fn counts(tree: &Tree) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in tree.with_extension("rs") {
        let mut parts = file.path.split('/');
        let house = match (parts.next(), parts.next()) {
            (Some("crates"), Some(name)) => format!("crates/{name}"),
            (Some(first), _) => first.to_owned(),
            (None, _) => continue,
        };
        *counts.entry(house).or_insert(0) += judge(&file.path, &comments(&file.text)).len();
    }
    counts
}

fn ratchet(listed: &str, found: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut limits = BTreeMap::new();
    for (at, line) in listed.lines().enumerate() {
        let Some((house, limit)) = line.rsplit_once(' ') else {
            continue;
        };
        let limit: usize = limit.parse().unwrap_or(0);
        limits.insert(house, limit);
        let count = found.get(house).copied().unwrap_or(0);
        if count + SLACK <= limit || count == 0 {
            let what = format!("the comments of `{house}` have {count} by now: lower the number");
            findings.push(Finding::new(LIST, at + 1, what));
        }
    }
    for (house, count) in found {
        let limit = limits.get(house.as_str()).copied().unwrap_or(0);
        if *count > limit {
            let what = format!(
                "{count} sentences of comments are not plain, over {limit}; `cargo xtask tidy --prose` lists them"
            );
            findings.push(Finding::new(house, 0, what));
        }
    }
    findings
}

fn judge(path: &str, pieces: &[Piece]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for piece in pieces {
        let at = |word: usize| piece.words[word].0;
        for (first, last) in sentences(piece) {
            let words = (first..=last)
                .filter(|w| is_word(&piece.words[*w].1))
                .count();
            if words > LONGEST_SENTENCE {
                let what = format!("a sentence of {words} words, over {LONGEST_SENTENCE}");
                findings.push(Finding::new(path, at(first), what));
            }
            for word in first..=last {
                let before = (word > first).then(|| bare(&piece.words[word - 1].1));
                if let Some(what) = subject(&bare(&piece.words[word].1), before.as_deref()) {
                    findings.push(Finding::new(path, at(word), what));
                }
            }
        }
        for (word, words) in brackets(piece) {
            if words > LONGEST_BRACKET {
                let what = format!("{words} words between brackets, over {LONGEST_BRACKET}");
                findings.push(Finding::new(path, at(word), what));
            }
        }
    }
    findings.sort_by_key(|f| f.line);
    findings
}

/// What is wrong with `word` where it stands; `before` is the word before it in the sentence.
fn subject(word: &str, before: Option<&str>) -> Option<String> {
    let hides = NO_NOUN.contains(&word)
        || (word == "who" && before.is_none_or(|b| BEFORE_WHO.contains(&b)));
    hides.then(|| format!("`{word}` stands where a noun is due"))
}

/// First and last word of each sentence.
fn sentences(piece: &Piece) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut first = 0;
    for (at, (_, word)) in piece.words.iter().enumerate() {
        let end = word.trim_end_matches(['"', '\'', ')', '*', '_', '”', ']']);
        let last = at + 1 == piece.words.len();
        if last || end.ends_with(['.', '?', '!']) && !end.ends_with("e.g.") {
            found.push((first, at));
            first = at + 1;
        }
    }
    found
}

/// The words in each outermost pair of brackets, with the word that opens it.
fn brackets(piece: &Piece) -> Vec<(usize, usize)> {
    let (mut found, mut open): (Vec<(usize, usize)>, Vec<usize>) = (Vec::new(), Vec::new());
    for (at, (_, word)) in piece.words.iter().enumerate() {
        // `f(x)` is code that has no code span; it opens and closes within one word.
        for c in word.chars() {
            match c {
                '(' => open.push(at),
                ')' => {
                    if let (Some(first), true) = (open.pop(), open.is_empty()) {
                        let inside = &piece.words[first..=at];
                        found.push((first, inside.iter().filter(|w| is_word(&w.1)).count()));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn is_word(word: &str) -> bool {
    word.chars().any(char::is_alphanumeric)
}

/// In lower case, without punctuation around it.
fn bare(word: &str) -> String {
    word.trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase()
}

/// The pieces of a page.
fn document(text: &str) -> Vec<Piece> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        reader.line(at + 1, line);
    }
    reader.finish()
}

/// The pieces of a Rust file's comments. A run of comment lines is read as a page.
fn comments(source: &str) -> Vec<Piece> {
    let (mut all, mut reader) = (Vec::new(), Reader::default());
    for (at, line) in source.lines().enumerate() {
        let text = line.trim_start();
        let comment = ["//!", "///", "//"]
            .iter()
            .find_map(|mark| text.strip_prefix(mark));
        match comment {
            Some(text) => reader.line(at + 1, text.strip_prefix(' ').unwrap_or(text)),
            None => all.append(&mut std::mem::take(&mut reader).finish()),
        }
    }
    all.append(&mut reader.finish());
    all
}

/// Cuts lines of Markdown into pieces.
#[derive(Default)]
struct Reader {
    pieces: Vec<Piece>,
    now: Piece,
    fenced: bool,
    /// The last line was empty, or code: an indented line is code now.
    blank: bool,
}

impl Reader {
    fn line(&mut self, at: usize, line: &str) {
        let text = line.trim_start();
        if text.starts_with("```") {
            self.end();
            self.fenced = !self.fenced;
            return;
        }
        if self.fenced {
            return;
        }
        if text.is_empty() {
            self.end();
            self.blank = true;
            return;
        }
        let indented = line.starts_with("    ");
        if indented && self.blank {
            return;
        }
        self.blank = false;
        if let Some(row) = text.strip_prefix('|') {
            self.end();
            for cell in cells(row) {
                self.words(at, cell);
                self.end();
            }
            return;
        }
        if let Some(item) = item(text) {
            self.end();
            self.words(at, item);
            return;
        }
        self.words(at, text);
        if text.starts_with('#') {
            self.end();
        }
    }

    fn words(&mut self, at: usize, text: &str) {
        for word in plain(text).split_whitespace() {
            self.now.words.push((at, word.to_owned()));
        }
    }

    fn end(&mut self) {
        if !self.now.words.is_empty() {
            self.pieces.push(std::mem::take(&mut self.now));
        }
    }

    fn finish(mut self) -> Vec<Piece> {
        self.end();
        self.pieces
    }
}

/// The text of a list's item.
fn item(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")) {
        return Some(rest);
    }
    let (number, rest) = text.split_once(". ")?;
    let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
    digits.then_some(rest)
}

/// The cells of a table's row; a bar inside a code span, or behind a backslash, parts nothing.
fn cells(row: &str) -> Vec<&str> {
    let (mut found, mut start, mut code, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in row.char_indices() {
        match c {
            '`' => code = !code,
            '|' if !code && !escaped => {
                found.push(&row[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        escaped = c == '\\';
    }
    found.push(&row[start..]);
    found
}

/// Code spans become one word, links their text.
fn plain(text: &str) -> String {
    let mut spans = text.split('`').enumerate().peekable();
    let mut joined = String::new();
    while let Some((i, span)) = spans.next() {
        // The last span of a line may stay open: it goes on in the next one.
        joined += if i % 2 == 1 && spans.peek().is_some() {
            "code"
        } else {
            span
        };
    }
    let mut out = String::new();
    let mut rest = joined.as_str();
    while let Some(at) = rest.find("](") {
        out += &rest[..=at];
        rest = rest[at..].split_once(')').map_or("", |(_, after)| after);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    fn found(text: &str) -> Vec<(usize, String)> {
        let all = judge("a.md", &document(text)).into_iter();
        all.map(|f| (f.line, f.what)).collect()
    }

    #[test]
    fn a_subject_that_is_no_noun_fails() {
        assert_eq!(found("A replica that is late is dropped."), []);
        assert_eq!(found("A person who reads it knows."), []);
        assert_eq!(found("Who reads this knows.").len(), 1);
        assert_eq!(found("It is\nfor who reads.")[0].0, 2);
        assert_eq!(found("A row that nobody reads. Whoever reads it.").len(), 2);
        assert_eq!(found("The word `nobody` is code."), []);
    }

    #[test]
    fn a_long_bracket_fails() {
        let words = |n: usize| vec!["word"; n].join(" ");
        assert_eq!(found(&format!("A ({}) b.", words(10))), []);
        assert_eq!(found(&format!("A\n({}) b.", words(11)))[0].0, 2);
        assert_eq!(found(&format!("A [b ({})](c.md) d.", words(9))), []);
        assert_eq!(found("A [b](a/very/long.md) (see [one](x) two)."), []);
    }

    #[test]
    fn a_long_sentence_fails() {
        let words = |n: usize| vec!["word"; n].join(" ");
        assert_eq!(found(&format!("{}. {}.", words(40), words(40))), []);
        assert_eq!(found(&format!("{}.", words(41))).len(), 1);
        assert_eq!(found(&format!("- {}\n- {}", words(30), words(30))), []);
        assert_eq!(found(&format!("| {} | {} |", words(30), words(30))), []);
        assert_eq!(found(&format!("x\n\n    {}\n", words(50))), []);
        assert_eq!(found(&format!("```\n{}\n```", words(50))), []);
    }

    #[test]
    fn comments_are_read_and_code_is_not() {
        let source = "//! Nobody reads.\nlet nobody = 1;\n    // For whoever\n    // comes.\n";
        let all = judge("a.rs", &comments(source));
        assert_eq!(all.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_list_may_only_shrink() {
        let found = BTreeMap::from([("crates/a".to_owned(), 20)]);
        assert_eq!(ratchet("crates/a 20", &found), []);
        assert_eq!(ratchet("crates/a 29", &found), []);
        assert_eq!(ratchet("crates/a 30", &found).len(), 1);
        assert_eq!(ratchet("crates/a 19", &found).len(), 1);
        assert_eq!(ratchet("", &found).len(), 1);
    }

    #[test]
    fn only_the_records_of_a_day_are_passed_over() {
        let text = "Nobody.";
        let t = tree(&[
            ("README.md", text),
            ("docs/a.md", text),
            ("docs/results/README.md", text),
            ("docs/results/2026-01-01-a.md", text),
            ("crates/a/tests/notes.md", text),
        ]);
        assert_eq!(check(&t).len(), 3);
    }
}
